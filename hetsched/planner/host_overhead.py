"""Host overhead in a split: the cost of driving a device with a link, paid by the cores.

The process of such a device submits, copies and waits on some core. If that core also computes, it
finishes later by as much, so it gets fewer units and all devices still finish together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hetsched.device import DeviceInfo
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.units import format_seconds


def plan_with_host_overhead(
    load: int,
    candidates: Sequence[Candidate],
    fixed_shares: Mapping[str, int] | None = None,
    *,
    cache: PlanCache | None = None,
) -> JobPlan:
    """Plan as `plan_job` does, with each core's host overhead by that plan added to its time.

    The overhead by the corrected plan differs by the overhead's fraction of the cores' time, which
    is of no account.

    Parameters and errors: as for `plan_job`.
    """
    cache = PlanCache() if cache is None else cache
    plan = plan_job(load, candidates, fixed_shares, cache=cache)
    overheads = host_overheads(plan)
    # A smaller overhead of every core changes no share.
    least = 0.004 * (plan.predicted_seconds or 0.0)
    if max(overheads.values(), default=0.0) <= least:
        return plan
    charged = [
        replace(c, host_overhead_seconds=overheads.get(c.info.name, 0.0)) for c in candidates
    ]
    plan = plan_job(load, charged, fixed_shares, cache=cache)
    reasons = [
        f"{name}: {format_seconds(seconds)} of host overhead for other devices"
        for name, seconds in overheads.items()
        if seconds > least
    ]
    return replace(plan, reasons=(*plan.reasons, *reasons))


def host_overheads(plan: JobPlan) -> dict[str, float]:
    """Return the seconds that each core (or team) loses to driving other devices of `plan`.

    A process that is pinned to one core takes all of its time there; one that may run on several
    cores uses them equally. A team waits for its slowest thread, so it loses what one of its cores
    does. A process with an idle core costs nothing.
    """
    cores = [assignment for assignment in plan.assignments if _info(assignment).is_core]
    overheads: dict[str, float] = {}
    for driven in plan.assignments:
        seconds = _overhead_seconds(driven)
        if not seconds or _has_idle_core(driven, cores, plan.candidates):
            continue
        hosts = [core for core in cores if may_share_core(_info(driven), _info(core))]
        shared_by = _host_core_count(_info(driven), [_info(core) for core in hosts])
        for core in hosts:
            overheads[core.device] = overheads.get(core.device, 0.0) + seconds / shared_by
    return overheads


def _host_core_count(driven: DeviceInfo, hosts: Sequence[DeviceInfo]) -> int:
    """Return the number of cores of `hosts` that the process of `driven` may run on."""
    if driven.cores and all(host.cores for host in hosts):
        return len({core for host in hosts for core in host.cores if core in driven.cores})
    return sum(host.threads for host in hosts)


def may_share_core(driven: DeviceInfo, core: DeviceInfo) -> bool:
    """Return whether the process of `driven` may run where this core (or team) computes."""
    if driven.name == core.name:
        return False
    return not driven.cores or not core.cores or not set(driven.cores).isdisjoint(core.cores)


def _overhead_seconds(assignment: Assignment) -> float:
    """Return the processor time of driving a device through its chunks."""
    if assignment.model is None or assignment.model.host_overhead is None:
        return 0.0
    overhead = assignment.model.host_overhead
    chunk_counts = Counter(assignment.plan.chunks)
    return sum(count * float(overhead.time(units)) for units, count in chunk_counts.items())


def _has_idle_core(
    driven: Assignment, cores: Sequence[Assignment], candidates: Sequence[Candidate]
) -> bool:
    """Return whether a core that the device's process may use has no share."""
    info = _info(driven)
    allowed = [
        candidate.info
        for candidate in candidates
        if candidate.info.is_core and may_share_core(info, candidate.info)
    ]
    working = {core.device for core in cores}
    busy_cores = {core for assignment in cores for core in _info(assignment).cores}
    has_free_core = bool(set(info.cores) - busy_cores)
    return has_free_core or any(core.name not in working for core in allowed if not core.members)


def _info(assignment: Assignment) -> DeviceInfo:
    assert assignment.candidate is not None, "the planner sets it"
    return assignment.candidate.info
