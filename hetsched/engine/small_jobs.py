"""Small jobs beside a large one: which waiting job may start on a core of the main job.

One rule: a job may overtake if it is predicted to take, on one core that does nothing else, at
most 5 % of what the main job still needs. Unmeasured jobs wait. A core has one small job at a
time, whose chunks alternate with the main job's; stealing spreads the delay over all devices.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

import msgspec

from hetsched.bounded_cache import BoundedCache
from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.planning.next_plan import find_candidates
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.job import ArenaOut, ArenaRef
from hetsched.jobs.job import Job
from hetsched.jobs.queue import JobQueue
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Candidate, JobPlan
from hetsched.transport.loop import Timer

log = logging.getLogger(__name__)

SMALL_FRACTION = 0.05
"""Time of a small job on one core, as a fraction of the main job's remaining time."""
MIN_REMAINING_SECONDS = 0.02
"""Below this a waiting job's turn comes soon enough."""
MAX_CONSIDERED = 32
"""First jobs in line that are considered: a long queue must not delay the loop."""
LOOK_SECONDS = 0.1
"""Between two looks at the line: what the main job still needs, and so what is small, changes."""
MAX_PLANS = 256
"""Plans kept, some kilobytes each."""

Place = int | str
"""A segment of the arena, or the path of a file, links resolved."""
PlanKey = tuple[str, bytes, int, str, str]
"""Workload, params, load, storage, core."""


@dataclass(frozen=True)
class Outlook:
    """What the main job still has to do. `devices`: those that still work for it."""

    remaining_seconds: float
    devices: Collection[str]


class SmallJobs:
    """The small jobs of one engine. On the loop's thread only.

    Parameters
    ----------
    outlook : callable
        Returns the main job's outlook; None if nothing may run beside it now.
    start : callable
        Starts a waiting job.

    Attributes
    ----------
    plans : dict
        Number of a small job that runs or is being opened -> its plan, on one core.
    """

    def __init__(
        self,
        context: EngineContext,
        queue: JobQueue,
        outlook: Callable[[], Outlook | None],
        start: Callable[[Job], None],
    ) -> None:
        self._context, self._queue = context, queue
        self._outlook, self._start = outlook, start
        self._order = ArrayOrder()
        self._known: BoundedCache[PlanKey, JobPlan | None] = BoundedCache(max_entries=MAX_PLANS)
        self._requested: set[PlanKey] = set()
        self._turns = itertools.count()
        self._last_turn: dict[str, int] = {}
        self._next_look: Timer | None = None
        self._is_looking = False
        self.plans: dict[int, JobPlan] = {}

    def add(self, job: Job) -> None:
        self._order.add(job)

    def remove(self, job: Job) -> None:
        """Note that a job has ended, perhaps before it began."""
        self._order.remove(job)
        self.plans.pop(job.number, None)

    def forget_plans(self) -> None:
        """Note that models have changed, or that a plan didn't work."""
        self._known.clear()

    def consider(self, jobs: Iterable[Job] | None = None) -> None:
        """Start those of `jobs`, or of the first in line, that are small enough now."""
        if self._is_looking or self._queue.first() is None or not self._context.small_jobs:
            return
        self._is_looking = True
        try:
            candidates = list(jobs or itertools.islice(self._queue.ready(), MAX_CONSIDERED))
            for job in candidates:
                self._consider(job)
            self._look_again()
        except Exception:  # the main job goes on
            log.exception("unexpected error in the choice of small jobs")
        finally:
            self._is_looking = False

    def _look_again(self) -> None:
        if self._next_look is None and self._outlook() is not None:
            self._next_look = self._context.loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._next_look = None
        self.consider()

    def _consider(self, job: Job) -> None:
        outlook = self._outlook()
        if outlook is None or not (self._queue.is_waiting(job) and job.is_ready):
            return
        bound: ResolvedJob | None = None if job.checked is None else job.checked.job
        if bound is None or job.runs_alone or bound.measure or bound.iterative is not None:
            return
        if outlook.remaining_seconds < MIN_REMAINING_SECONDS or not self._order.may_overtake(job):
            return
        cores = self._free_cores().intersection(bound.devices)
        if not cores:
            return
        core = min(cores, key=lambda c: (c in outlook.devices, self._last_turn.get(c, -1)))
        key = _key(bound, core)
        if key not in self._known:
            self._request(key, job, bound, core)
            return
        plan = self._known.get(key)
        if plan is None or plan.predicted_seconds is None:
            return
        if plan.predicted_seconds <= SMALL_FRACTION * outlook.remaining_seconds:
            self.plans[job.number] = plan
            self._last_turn[core] = next(self._turns)
            self._start(job)

    def _free_cores(self) -> set[str]:
        fleet = self._context.fleet
        usable = fleet.ready() - self._context.disabled
        cores = {info.name for info in fleet.infos if info.is_shareable and info.name in usable}
        return cores.difference(plan.assignments[0].device for plan in self.plans.values())

    def _request(self, key: PlanKey, job: Job, bound: ResolvedJob, core: str) -> None:
        if key in self._requested:
            return
        self._requested.add(key)
        fleet, state = self._context.fleet, self._context.planning
        equal = [info for info in fleet.infos if info.is_shareable]

        def planned(plan: JobPlan | None, error: BaseException | None) -> None:
            self._requested.discard(key)
            self._known.put(key, plan)
            self.consider([job])

        self._context.planner_thread.run(
            lambda: plan_for_core(bound, fleet.info(core), equal, state), planned
        )


def plan_for_core(
    job: ResolvedJob, info: DeviceInfo, cores: list[DeviceInfo], state: PlanningState
) -> JobPlan:
    """Plan all of `job` for core `info`, with the measurements of equal ones among `cores`.

    In the planner's thread. Raises Unavailable if no variant is installed for this core.
    """
    equal = [core for core in cores if core.identity == info.identity]
    candidates = find_candidates(job, equal, state, None)
    own = next(candidate for candidate in candidates if candidate.info.name == info.name)
    return plan_job(job.load, [_fastest(own, candidates, job.load)], cache=state.plan_cache)


def _fastest(own: Candidate, equal: list[Candidate], load: int) -> Candidate:
    """Return `own` with the fastest variant measured on any equal core; unchanged if none was."""
    measured = [
        (float(model.total.time(load)), name, own.models.get(name) or model)
        for candidate in equal
        for name, model in candidate.models.items()
        if model is not None
    ]
    if not measured:
        return own
    _, name, model = min(measured, key=lambda timed: timed[:2])
    runs = {name: own.run_counts.get(name, 0)}
    return dataclasses.replace(own, models={name: model}, run_counts=runs)


def _key(job: ResolvedJob, core: str) -> PlanKey:
    return job.reference, msgspec.json.encode(job.params), job.load, job.storage, core


class ArrayOrder:
    """Which jobs may overtake others: those whose arrays and files no other job changes. Pure.

    A client may submit a job that reads what an earlier one writes, without waiting for that: jobs
    that share an array or a file which one of them writes run in the order of the queue.
    O(arrays of a job) per call.
    """

    def __init__(self) -> None:
        self._uses: dict[int, tuple[frozenset[Place], frozenset[Place]]] = {}
        self._readers: Counter[Place] = Counter()
        self._writers: Counter[Place] = Counter()

    def add(self, job: Job) -> None:
        reads, writes = _places(job)
        if reads or writes:
            self._uses[job.number] = reads, writes
            self._readers.update(reads)
            self._writers.update(writes)

    def remove(self, job: Job) -> None:
        reads, writes = self._uses.pop(job.number, (frozenset(), frozenset()))
        _subtract(self._readers, reads)
        _subtract(self._writers, writes)

    def may_overtake(self, job: Job) -> bool:
        """Return whether no other unfinished job writes what it uses, or uses what it writes."""
        reads, writes = self._uses.get(job.number, (frozenset(), frozenset()))
        if any(self._writers[place] > (place in writes) for place in reads):
            return False
        return not any(
            self._writers[place] > 1 or self._readers[place] > (place in reads) for place in writes
        )


def _places(job: Job) -> tuple[frozenset[Place], frozenset[Place]]:
    spec, checked = job.spec, job.checked
    reads: set[Place] = {ref.segment for ref in spec.inputs.values() if isinstance(ref, ArenaRef)}
    writes: set[Place] = {
        out.into.segment
        for out in spec.outputs.values()
        if isinstance(out, ArenaOut) and out.into is not None
    }
    if checked is not None:
        reads.update(checked.input_paths)
        writes.update(claim.path for claim in checked.claims)
    return frozenset(reads), frozenset(writes)


def _subtract(counts: Counter[Place], places: Iterable[Place]) -> None:
    for place in places:
        counts[place] -= 1
        if not counts[place]:
            del counts[place]
