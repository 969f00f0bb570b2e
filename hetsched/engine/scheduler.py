"""Runs the accepted jobs of an engine in the queue's order, and reports their states.

It carries out what `queue/` decides: starts drivers, ends jobs that can't run, queues failed ones
again, sets timers. On the loop's thread only.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.concurrency.running_jobs import RunningJobs
from hetsched.engine.concurrency.side_jobs import SideJobs, needs_turn
from hetsched.engine.concurrency.side_plans import SideStart
from hetsched.engine.context import EngineContext
from hetsched.engine.engine_hooks import EngineHooks
from hetsched.engine.explanations import ExplanationArchive, JobSnapshot
from hetsched.engine.job_ends import JobEnds
from hetsched.engine.openings import Openings
from hetsched.engine.planning.run_planner import LearningTask
from hetsched.engine.queue.job_queue import JobQueue
from hetsched.engine.queue.records import (
    AbortJob,
    Decision,
    FailJob,
    Outcome,
    QueuedTerms,
    ReportPosition,
)
from hetsched.engine.queued_job import JobTimers, QueuedJob, Readmission
from hetsched.engine.run.report import with_notes
from hetsched.engine.run.runner import JobRunner
from hetsched.errors import Cancelled, HetschedError, JobFailed, TryAgain, to_record
from hetsched.job import Done, Failed, JobState, Queued
from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)


class JobScheduler:
    """The unfinished jobs of one engine."""

    def __init__(
        self, context: EngineContext, loop: Loop, archive: ExplanationArchive, hooks: EngineHooks
    ) -> None:
        self._context = context
        self._admission = context.admission
        self._hooks = hooks
        self.queue = JobQueue()
        self._jobs: dict[int, QueuedJob] = {}
        self._timers = JobTimers(loop, self._on_deadline, self._on_timeout)
        self.running = RunningJobs()
        self._sides = SideJobs(context, self.running, self.queue, self._jobs, self._start)
        self._ends = JobEnds(context, self._jobs, self._sides, archive)
        self._openings = Openings(loop, self._on_slow_opening)
        self._is_advancing = False
        self._is_stopping = False
        self.is_paused = False
        """No job starts at present."""

    # ---- from the engine

    def accept(
        self,
        queued: QueuedJob,
        readmission: Readmission | None,
        reply: Callable[[int], None],
    ) -> None:
        """Queue a job and reply with its number."""
        number = queued.number
        self._jobs[number] = queued
        self._sides.added(queued)
        self._admission.pending.add(number, queued.checked.claims, queued.checked.checkpoint)
        terms = QueuedTerms.of(number, queued.spec)
        if readmission is not None:
            terms.attempts, terms.failures = readmission.attempts, readmission.failures
        decisions = self.queue.submit(terms, time.time(), readmission is not None)
        try:
            reply(number)
        except Exception as error:
            self._drop_unreported(queued, error)
            return
        if self._is_stopping:
            self._drop(queued, stopping_error())
            return
        self._execute(decisions)
        if self.queue.is_waiting(number):
            self._timers.watch_deadline(queued.spec.deadline)
            self._report_position(number)

    def cancel(self, number: int) -> None:
        """Stop a job between chunks. No effect if it has ended.

        An iterative job with checkpoints writes one first; a second call ends it at once.
        """
        self._stop_job(number, Cancelled(f"job {number} was cancelled"), saves_state=True)
        self.advance()

    def apply(self, decisions: list[Decision]) -> bool:
        """Carry out the queue's decisions on a change of it; return whether there were any."""
        self._execute(decisions)
        self.advance()
        return bool(decisions)

    def position(self, number: int) -> Queued | None:
        """Return where a job waits; None if it doesn't."""
        return self._queued(number) if self.queue.is_waiting(number) else None

    def stop(self) -> None:
        """Fail all waiting jobs, and stop running ones between chunks (exit 75)."""
        self._is_stopping = self._context.is_stopping = True
        for number in reversed(self.queue.waiting()):  # those that run after others come first
            self._drop(self._jobs[number], stopping_error())
        for number in self._openings.numbers():
            self._stop_job(number, stopping_error())
        for driver in self.running:
            driver.abort(stopping_error(), saves_state=True)
        self.advance()

    def advance(self) -> None:
        """Start queued jobs until one stays active, then small ones beside it.

        A loop rather than recursion, since a job may end while it is being started, which calls
        this method again.
        """
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while not self._is_full and (number := self.queue.first()) is not None:
                self._start(self._jobs[number])
            if not self.is_paused:
                self._sides.consider()
        finally:
            self._is_advancing = False
        if not self.running and not self._openings:
            self._hooks.on_idle()

    @property
    def _has_main_job(self) -> bool:
        return self.running.main is not None or self._openings.has_main_job

    def on_lost(self, devices: tuple[str, ...], reason: str, culprits: tuple[str, ...]) -> None:
        """Report the death of a device process to the jobs that it concerns."""
        if self.running.on_lost(devices, reason, culprits):
            self._sides.on_lost()

    @property
    def _is_full(self) -> bool:
        return self._has_main_job or self.is_paused

    # ---- the queue's decisions

    def _queued(self, number: int, reason: str = "") -> Queued:
        position = self.queue.position(number)
        failures = self.queue.terms(number).failures
        return Queued(number, position.ahead, reason or position.reason, failures)

    def _report_position(self, number: int, reason: str = "") -> None:
        queued = self._jobs[number]
        try:
            queued.on_state(self._queued(number, reason))
        except Exception as error:
            if self.queue.is_waiting(number):
                self._drop_unreported(queued, error)

    def _execute(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            match decision:
                case FailJob(number, error):
                    self._ends.report_unstarted(self._jobs[number], error)
                case AbortJob(number, error):
                    self._stop_job(number, error)
                case ReportPosition(number):
                    if self.queue.is_waiting(number):
                        self._report_position(number)

    def _stop_job(self, number: int, error: HetschedError, *, saves_state: bool = False) -> None:
        """End a job with `error`; a running one between chunks. No effect if it has ended."""
        if self.queue.is_waiting(number):
            self._drop(self._jobs[number], error)
        elif number in self._openings:
            self._jobs[number].stop = error
            self._openings.abandon(number, error)
        elif (driver := self.running.get(number)) is not None:
            if driver.side is not None:
                self._jobs[number].stop = error  # it may be withdrawn, and must not wait again
            driver.abort(error, saves_state=saves_state)

    def _drop_unreported(self, queued: QueuedJob, error: Exception) -> None:
        """Fail a job whose callback raised."""
        log.error("job %d: unexpected error in a callback", queued.number, exc_info=error)
        self._drop(queued, error)

    def _drop(self, queued: QueuedJob, error: Exception) -> None:
        """End a job that hasn't started, or can't."""
        if queued.number not in self.queue:
            return
        decisions = self.queue.end(queued.number, Outcome.of(to_record(error)))
        self._ends.report_unstarted(queued, error)
        self._execute(decisions)

    def _start(self, queued: QueuedJob, side: SideStart | None = None) -> None:
        self.queue.start(queued.number)
        queued.turn = queued.turn or time.monotonic()
        if queued.is_open:
            self._begin(queued, side)
            return
        opening = self._openings.begin(queued.number, side)

        def on_opened(job: ResolvedJob | None, error: BaseException | None) -> None:
            self._openings.end(queued.number)
            try:
                self._reopened(queued, job, error, side)
            finally:
                self.advance()

        opening.abandon = self._admission.open(
            queued.checked, on_opened, self._context.output_token(queued.number)
        )
        self._openings.watch(queued.number)

    def _reopened(
        self,
        queued: QueuedJob,
        job: ResolvedJob | None,
        error: BaseException | None,
        side: SideStart | None,
    ) -> None:
        """Begin a job, or another attempt, with its files open."""
        if job is not None:
            queued.job, queued.is_open = job, True
        if queued.stop is not None or self._is_stopping:
            self._drop(queued, queued.stop or stopping_error())
        elif job is None:
            self._drop(queued, error if isinstance(error, Exception) else TryAgain("no answer"))
        elif self._has_lost_place(queued.number, side):  # another has started meanwhile
            self.queue.put_back(queued.number)
        else:
            self._begin(queued, side)

    def _on_slow_opening(self, number: int) -> None:
        self._sides.give_up_core(number)
        self.advance()

    def _has_lost_place(self, number: int, side: SideStart | None) -> bool:
        return self._has_main_job if side is None else not self._sides.has_core(number)

    def _begin(self, queued: QueuedJob, side: SideStart | None) -> None:
        on_state = queued.on_state
        if side is None:
            on_state = functools.partial(self._on_main_state, queued)
        try:
            driver = JobRunner(
                queued.number,
                queued.spec,
                queued.job,
                self._context,
                on_state,
                functools.partial(self._on_end, queued),
                side,
                queued.on_prepared,
            )
        except Exception as error:
            log.exception("job %d can't start", queued.number)
            self._drop(queued, error)
            return
        self._timers.limit_running(queued.number, queued.spec.timeout)
        self.running.add(driver)
        driver.begin()

    def _on_main_state(self, queued: QueuedJob, state: JobState) -> None:
        """Report progress of the main job; it shows which jobs may run beside it."""
        queued.on_state(state)
        self._sides.consider()

    def _on_end(
        self,
        queued: QueuedJob,
        state: Done | Failed,
        learning_task: Callable[[], LearningTask | None],
    ) -> None:
        driver = self.running.remove(queued.number)
        try:
            runs_again = self._runs_again(driver, queued, state)
        except Exception:  # a job whose end gets lost would hang its client
            log.exception("job %d: unexpected error at its end; it isn't rerun", queued.number)
            runs_again = False
        try:
            if not runs_again:
                self._conclude(queued, state, driver.snapshot)
            if (task := learning_task()) is not None:
                self._hooks.on_learn(task)
        finally:
            self.advance()

    def _runs_again(self, driver: JobRunner, queued: QueuedJob, state: Done | Failed) -> bool:
        self._timers.stop_limit(queued.number)
        self._sides.ended(driver)
        if isinstance(state, Done) or self._is_stopping:
            return False
        if needs_turn(driver, state):
            self._put_back(queued)
            return True
        if driver.has_checkpoint:  # the next attempt goes on from there
            queued.spec = replace(queued.spec, resume=queued.spec.checkpoint)
        return self._is_requeued(queued, state)

    def _conclude(
        self, queued: QueuedJob, state: Done | Failed, snapshot: Callable[[], JobSnapshot]
    ) -> None:
        error = state.error if isinstance(state, Failed) else None
        decisions: list[Decision] = []
        try:
            decisions = self.queue.end(queued.number, Outcome.of(error))
        except Exception:
            log.exception("job %d: unexpected error in the queue", queued.number)
        if queued.failures:
            state = with_notes(state, queued.failures)
        if queued.turn is not None:
            whole = time.monotonic() - queued.turn
            state = replace(state, report=replace(state.report, whole_seconds=whole))
        self._ends.report(queued, state, snapshot)
        self._execute(decisions)

    def _put_back(self, queued: QueuedJob) -> None:
        """Let a side job wait for its turn."""
        queued.is_open = False
        queued.runs_alone = True
        if queued.stop is not None:
            self._drop(queued, queued.stop)
            return
        self.queue.put_back(queued.number)
        self._report_position(queued.number)

    def _is_requeued(self, queued: QueuedJob, state: Failed) -> bool:
        """Let a failed job wait for its next attempt, if it has one."""
        if not self.queue.requeue(queued.number, state.error.code):
            return False
        queued.is_open, queued.stop = False, None
        terms = self.queue.terms(queued.number)
        text = f"attempt {terms.attempts} failed: {state.error.message}"
        queued.failures.append(text)
        log.warning(
            "job %d: %s; retry %d of %d", queued.number, text, terms.failures, terms.retries
        )
        self._report_position(queued.number, f"retry {terms.failures} of {terms.retries}: {text}")
        return True

    def _on_deadline(self) -> None:
        self._execute(self.queue.expire(time.time()))
        self._timers.watch_deadline(self.queue.next_deadline())
        self.advance()

    def _on_timeout(self, number: int) -> None:
        timeout = self._jobs[number].spec.timeout
        error = JobFailed(f"job {number} ran longer than its timeout of {timeout:g} s")
        self._stop_job(number, error)


def stopping_error() -> TryAgain:
    return TryAgain("the daemon is stopping; submit the job again later")
