"""Starts small jobs beside the main one, as the rule allows. On the loop's thread."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Mapping

from hetsched.engine.concurrency.array_order import ArrayOrder, ArrayUse
from hetsched.engine.concurrency.running_jobs import RunningJobs
from hetsched.engine.concurrency.side_plans import (
    SideKey,
    SidePlan,
    SidePlans,
    SideStart,
    job_size,
    make_side_plan,
    side_key,
)
from hetsched.engine.concurrency.small_job_rule import (
    JobSize,
    Outlook,
    SmallJobRule,
    guessed_seconds,
)
from hetsched.engine.context import EngineContext
from hetsched.engine.queue.job_queue import JobQueue
from hetsched.engine.queued_job import QueuedJob
from hetsched.engine.run.runner import JobRunner
from hetsched.errors import TryAgain, Unavailable
from hetsched.job import Failed
from hetsched.transport.loop import Timer

log = logging.getLogger(__name__)

MAX_CONSIDERED = 32
"""First jobs in line that are considered: a long queue must not delay the loop. Arbitrary."""

REST_SECONDS = 0.005
"""Pause after a pass over the jobs in line that started none."""
LOOK_SECONDS = 0.1
"""Time after such a pass until the next one if nothing happens: what the main job still needs, and
so what is small beside it, changes while its chunks run."""

StartSide = Callable[[QueuedJob, SideStart], None]


def needs_turn(driver: JobRunner, state: Failed) -> bool:
    """Return whether a side job has to start again, alone: its core or memory wasn't there.

    Or its core has failed too often for this kind of job: others may do.
    """
    if driver.side is None:
        return False
    is_transient = state.error.code in (TryAgain.code, Unavailable.code)
    return is_transient or driver.has_excluded_devices


class SideJobs:
    """The side jobs of one engine.

    Parameters
    ----------
    jobs : mapping
        All unfinished jobs.
    start : callable
        Starts a waiting job at the side.
    """

    def __init__(
        self,
        context: EngineContext,
        running: RunningJobs,
        queue: JobQueue,
        jobs: Mapping[int, QueuedJob],
        start: StartSide,
    ) -> None:
        self._context = context
        self._running = running
        self._queue = queue
        self._jobs = jobs
        self._start = start
        self._rule = SmallJobRule()
        self._plans = SidePlans()
        self._order = ArrayOrder()
        self._requested: set[SideKey] = set()
        self._main_size: tuple[int, JobSize] | None = None
        self._is_considering = False
        self._has_looked = False
        self._is_resting = False
        self._has_missed_call = False
        self._next_look: Timer | None = None

    def added(self, queued: QueuedJob) -> None:
        """Note a new job, which waits."""
        checked = queued.checked
        outputs = [claim.path for claim in checked.claims]
        self._order.add(queued.number, ArrayUse.of(queued.spec, checked.input_paths, outputs))

    def removed(self, number: int) -> None:
        """Note that a job has ended, perhaps before it began: its files couldn't be opened."""
        self._order.remove(number)
        self._rule.end(number)

    def has_core(self, number: int) -> bool:
        """Return whether a core is kept for this side job."""
        return number in self._rule.running

    def give_up_core(self, number: int) -> None:
        """Let other jobs have the core of a side job that takes long to open."""
        self._rule.end(number)

    def consider(self) -> None:
        """Start the side jobs that can be started, now or within REST_SECONDS.

        Cheap if none can: a pass over the jobs in line takes up to 0.3 ms, which thousands of
        submissions per second must not each pay.
        """
        if self._is_resting:
            self._has_missed_call = True
        else:
            self._pass()

    def _end_rest(self) -> None:
        self._is_resting = False
        if self._has_missed_call:
            self._has_missed_call = False
            self._pass()
        else:
            self._next_look = self._context.loop.call_later(LOOK_SECONDS, self._pass)

    def _pass(self) -> None:
        main = self._running.main
        if main is None or self._queue.first() is None or not self._context.small_jobs:
            return
        if self._is_considering:
            return
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        self._is_considering = True
        before = self._rule.started
        try:
            while self._start_next(main):
                pass
            if self._has_looked and self._rule.started == before:
                self._is_resting = True
                self._context.loop.call_later(REST_SECONDS, self._end_rest)
        except Exception:  # the main job, which may be reporting its progress, goes on
            log.exception("unexpected error in the choice of small jobs")
        finally:
            self._is_considering = self._has_looked = False

    def ended(self, driver: JobRunner) -> None:
        """Note the end of a running job."""
        if driver.side is None:
            self._plans.clear()  # what is learnt from it changes the models
            self._main_size = None
            return
        self._rule.end(driver.number)
        if driver.is_withdrawn or not driver.side.is_measured:
            self._plans.drop(side_key(self._jobs[driver.number].job, driver.side.core))

    def on_lost(self) -> None:
        """Start no more jobs at the side of this main job: a process with side jobs has died."""
        self._rule.bar()

    # ---- inner steps

    def _start_next(self, main: JobRunner) -> bool:
        """Start one side job; return whether there was one."""
        if self._running.main is not main:
            return False
        self._rule.begin(main.number)
        cores = self._rule.free(self._cores())
        outlook = main.outlook() if cores else None
        if outlook is None or not outlook.is_long:
            return False
        self._has_looked = True
        for number in itertools.islice(self._queue.ready(), MAX_CONSIDERED):
            queued = self._jobs[number]
            if queued.runs_alone or queued.job.measure or queued.job.iterative is not None:
                continue
            if not self._order.may_overtake(number):
                continue
            allowed = [device for device in queued.job.devices if device in cores]
            if not allowed:
                continue
            core = self._rule.choose(allowed, outlook.devices)
            if self._starts(queued, core, main, outlook):
                return True
        return False

    def _starts(self, queued: QueuedJob, core: str, main: JobRunner, outlook: Outlook) -> bool:
        """Start `queued` on `core` if it is small enough; request its plan if there is none."""
        key = side_key(queued.job, core)
        if key not in self._plans:
            self._request(key, queued, core, main)
            return False
        side = self._plans.get(key)
        if side is None:
            return False
        guess = None
        if side.seconds is None and self._main_size is not None:
            guess = guessed_seconds(side.size, self._main_size[1], outlook)
        if not self._rule.admits(side.seconds, guess, outlook.remaining_seconds):
            return False
        is_guess = side.seconds is None
        self._rule.start(queued.number, core, side.seconds or guess or 0.0, is_guess=is_guess)
        main.add_side_job()
        self._start(queued, SideStart(core, side.plan, main.number))
        return True

    def _cores(self) -> set[str]:
        """Return the cores that several jobs may use."""
        fleet = self._context.fleet
        ready = fleet.ready()
        ready -= self._context.disabled
        return {info.name for info in fleet.infos if info.is_shareable and info.name in ready}

    def _request(self, key: SideKey, queued: QueuedJob, core: str, main: JobRunner) -> None:
        """Have the planner's thread plan a job for `core`."""
        if key in self._requested:
            return
        self._requested.add(key)
        fleet, state = self._context.fleet, self._context.planning
        cores = [info for info in fleet.infos if info.is_shareable]
        job, main_job, number = queued.job, self._jobs[main.number].job, main.number

        def plan() -> tuple[SidePlan, JobSize]:
            return make_side_plan(job, fleet.info(core), cores, state), job_size(main_job)

        done = functools.partial(self._planned, key, number)
        self._context.planner_thread.run(plan, done)

    def _planned(
        self,
        key: SideKey,
        main: int,
        planned: tuple[SidePlan, JobSize] | None,
        error: BaseException | None,
    ) -> None:
        self._requested.discard(key)
        if self._running.main is None or self._running.main.number != main:
            return
        self._plans.put(key, None if planned is None else planned[0])
        if planned is not None:
            self._main_size = main, planned[1]
        self._pass()
