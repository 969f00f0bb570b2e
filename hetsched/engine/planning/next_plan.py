"""The plan of the next run of a job, from what models.db and earlier runs say of its devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.measurement.equal_plan import equal_plan
from hetsched.engine.planning.candidates import device_demand, find_candidates
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.engine.planning.repeated_jobs import job_kind
from hetsched.planner.records import JobPlan


def next_plan(
    job: ResolvedJob,
    infos: Sequence[DeviceInfo],
    state: PlanningState,
    memory_limit: int | None,
    unstarted: Collection[str] = (),
) -> JobPlan:
    """Return shares, chunks and variants for the next run of `job`.

    Parameters
    ----------
    infos : sequence of DeviceInfo
        The devices that may take part.
    memory_limit : int or None, bytes
        Of each device's own memory.
    unstarted : collection of str
        Those of the devices whose process would first have to start.

    Raises
    ------
    DataError
        One unit is too big for every device.
    Unavailable
        No variant is installed for any device.
    """
    if job.measure:
        return _measuring_plan(job, infos, state, memory_limit)
    kind = job_kind(job, (info.name for info in infos), memory_limit)
    rebalancer = state.repeated_jobs.rebalancer(kind, job.load)
    if rebalancer.needs_candidates:
        plan = rebalancer.replan(find_candidates(job, infos, state, memory_limit, unstarted))
    else:
        plan = rebalancer.repeat()
    changes = [state.speed_changes.pop(info.name, "") for info in infos]
    if not any(changes):
        return plan
    return dataclasses.replace(plan, reasons=(*plan.reasons, *filter(None, changes)))


def _measuring_plan(
    job: ResolvedJob,
    infos: Sequence[DeviceInfo],
    state: PlanningState,
    memory_limit: int | None,
) -> JobPlan:
    return equal_plan(
        job.load,
        [(info, device_demand(job, info, state, memory_limit)) for info in infos],
        job.measure,
        lambda info: [variant.name for variant in state.variants.usable(job, info)],
    )
