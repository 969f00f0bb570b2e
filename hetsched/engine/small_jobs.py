"""Small jobs beside a large one: which waiting job may start on a core of the main job.

One rule: a job may overtake if it is predicted to take, on one core that does nothing else, at
most 5 % of what the main job still needs. Unmeasured jobs wait. A core has one small job at a
time, whose chunks alternate with the main job's; stealing spreads the delay over all devices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hetsched.bounded_cache import BoundedCache
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning.job_plan import find_candidates
from hetsched.jobs.table import JobRecord
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import JobPlan

if TYPE_CHECKING:
    from hetsched.engine.engine import Engine

SMALL_FRACTION = 0.05
"""Time of a small job on one core, as a fraction of the main job's remaining time."""
MIN_REMAINING_SECONDS = 0.02
"""Below this a waiting job's turn comes soon enough."""
MAX_PLANS = 256
"""Plans kept, some kilobytes each."""


class Outlook(NamedTuple):
    """What the main job still has to do."""

    remaining_seconds: float
    devices: Collection[str]  # Those that still work for it


class SmallJobs:
    """The small jobs of one engine. On the loop's thread only."""

    def __init__(self, engine: Engine, on_planned: Callable[[], None]) -> None:
        self._engine, self._on_planned = engine, on_planned
        # Of the kinds of jobs on each core; None: being planned, or there is no plan
        self.known: BoundedCache[tuple[bytes, str], JobPlan | None] = BoundedCache(
            max_entries=MAX_PLANS
        )
        # Number of a small job that runs or is being opened -> its plan, on one core
        self.plans: dict[int, JobPlan] = {}

    def plan_beside(self, outlook: Outlook, job: JobRecord) -> JobPlan | None:
        checked: ResolvedJob | None = job.checked
        if checked is None or job.runs_alone or checked.measure or checked.iterative is not None:
            return None
        if checked.in_threads:  # while that of the main job runs in processes
            return None
        if outlook.remaining_seconds < MIN_REMAINING_SECONDS:
            return None
        if not self._engine.admission.uses.may_overtake(job):
            return None
        fleet = self._engine.fleet
        cores = {info.name for info in fleet.infos if info.is_shareable}
        cores &= fleet.devices("ready").intersection(checked.devices) - self._engine.disabled
        cores -= {plan.assignments[0].device for plan in self.plans.values()}
        if not cores:
            return None
        core = min(cores, key=lambda name: (name in outlook.devices, name))
        kind = (checked.reference, checked.params, checked.load, checked.storage)
        key = msgspec.json.encode(kind), core
        if key not in self.known:
            self.known.put(key, None)
            self._request(key, checked, core)
        plan = self.known.get(key)
        if plan is None or plan.predicted_seconds is None:
            return None
        is_small = plan.predicted_seconds <= SMALL_FRACTION * outlook.remaining_seconds
        return plan if is_small else None

    def _request(self, key: tuple[bytes, str], checked: ResolvedJob, core: str) -> None:
        """Plan all of a job for a core, by the measurements of equal ones."""
        fleet, state = self._engine.fleet, self._engine.planning
        cores = [info for info in fleet.infos if info.is_shareable]
        equal = [info for info in cores if info.identity == fleet.info(core).identity]

        def plan() -> JobPlan:
            candidates = find_candidates(checked, equal, state)
            return plan_job(checked.load, candidates, {core: checked.load}, cache=state.plan_cache)

        def planned(plan: JobPlan | None, error: BaseException | None) -> None:
            if plan is not None:
                self.known.put(key, plan)
                self._on_planned()

        self._engine.planner_thread.submit(plan, planned)
