"""Plans of jobs that run beside a larger one: all units on one core, nothing to balance.

Made in the planner's thread and kept, so that a repeated small job needs none of its time, which
the main job's cores would have to give.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec

from hetsched.bounded_cache import BoundedCache
from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob, array_bytes
from hetsched.engine.concurrency.small_job_rule import JobSize
from hetsched.engine.planning.next_plan import find_candidates
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Candidate, JobPlan

MAX_PLANS = 256
"""Side plans kept, some kilobytes each; the least recently used is dropped first. Arbitrary."""

SideKey = tuple[str, bytes, int, str, str]
"""Workload, params, load, storage, core."""


@dataclass(frozen=True)
class SideStart:
    """How a side job runs: on `core` by `plan`, beside main job `beside`."""

    core: str
    plan: JobPlan
    beside: int

    @property
    def is_measured(self) -> bool:
        """Whether there were measurements to plan with."""
        return self.plan.predicted_seconds is not None


@dataclass(frozen=True)
class SidePlan:
    """The plan of a job on one core. `size`: compared with the main job's if unpredicted."""

    plan: JobPlan
    size: JobSize

    @property
    def seconds(self) -> float | None:
        """Predicted; None without measurements."""
        return self.plan.predicted_seconds


class SidePlans:
    """The latest side plans by kind of job and core; None for a job that can't be planned."""

    def __init__(self) -> None:
        self._plans: BoundedCache[SideKey, SidePlan | None] = BoundedCache(max_entries=MAX_PLANS)

    def __contains__(self, key: SideKey) -> bool:
        return key in self._plans

    def get(self, key: SideKey) -> SidePlan | None:
        return self._plans.get(key)

    def put(self, key: SideKey, plan: SidePlan | None) -> None:
        self._plans.put(key, plan)

    def drop(self, key: SideKey) -> None:
        """Drop a plan that didn't work, or that a measurement has made obsolete."""
        self._plans.pop(key)

    def clear(self) -> None:
        """Drop all plans: models have changed."""
        self._plans.clear()


def side_key(job: ResolvedJob, core: str) -> SideKey:
    return job.reference, msgspec.json.encode(job.params), job.load, job.storage, core


def job_size(job: ResolvedJob) -> JobSize:
    """Return the bytes of all arrays of `job`, and its operations. Calls the workload."""
    nbytes = sum(array_bytes(spec, job.load) for spec in job.specs)
    return JobSize(job.load, float(nbytes), float(job.workload.flops(job.params, job.load)))


def make_side_plan(
    job: ResolvedJob, info: DeviceInfo, cores: list[DeviceInfo], state: PlanningState
) -> SidePlan:
    """Plan `job` for core `info` with the measurements of equal `cores`, in the planner's thread.

    Raises
    ------
    Unavailable
        No variant is installed for this core.
    """
    equal = [core for core in cores if core.identity == info.identity]
    candidates = find_candidates(job, equal, state, None)
    own = next(candidate for candidate in candidates if candidate.info.name == info.name)
    plan = plan_job(job.load, [_fastest(own, candidates, job.load)], cache=state.plan_cache)
    return SidePlan(plan, job_size(job))


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
