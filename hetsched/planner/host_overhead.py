"""What feeding a device behind a link costs the cores, and the split that reckons with it.

The process of such a device submits, copies and waits on some core. One that also computes is then
later by that much, so it gets fewer units, and all devices still finish together. The cost depends
on the plan, and the plan on the cost: planned again until both agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hetsched.device import DeviceInfo
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.units import format_seconds

ROUNDS = 4
"""Times that it is planned again, at most: each changes what is left by less than the share that
feeding has of all cores."""
CLOSE = 4e-3
"""Of the makespan: a change of the cost that isn't worth another plan. Arbitrary."""

TOLD = 0.01
"""Of the makespan: less isn't worth a word. Arbitrary."""


def plan_fed(
    load: int, candidates: Sequence[Candidate], held: Mapping[str, int] | None = None
) -> JobPlan:
    """As `plan_job`; cores are charged for what feeding the other devices takes of their time."""
    found = plan_job(load, candidates, held)
    charged: dict[str, float] = {}
    for _ in range(ROUNDS):
        after = charges(found)
        worth = CLOSE * (found.predicted_seconds or 0.0)
        names = {*after, *charged}
        if all(abs(after.get(n, 0.0) - charged.get(n, 0.0)) <= worth for n in names):
            break
        charged = after
        paying = [replace(c, charge=charged.get(c.info.name, 0.0)) for c in candidates]
        found = plan_job(load, paying, held)
    reasons = [
        f"{name}: {format_seconds(seconds)} of host overhead of other devices"
        for name, seconds in charged.items()
        if seconds > TOLD * (found.predicted_seconds or 0.0)
    ]
    return replace(found, reasons=(*found.reasons, *reasons)) if reasons else found


def charges(plan: JobPlan) -> dict[str, float]:
    """Core (or team) -> seconds that it is later, because it feeds the devices of `plan`.

    A feeder that may use several cores uses them alike; one that finds a core with nothing else to
    do costs nobody anything.
    """
    cores = [one for one in plan.assignments if _info(one).is_core]
    found: dict[str, float] = {}
    for feeder in plan.assignments:
        seconds = _seconds(feeder)
        hosts = [core for core in cores if may_feed(_info(feeder), _info(core))]
        if not seconds or _idle(feeder, cores, plan.candidates):
            continue
        threads = sum(_info(core).threads for core in hosts)
        for core in hosts:
            found[core.device] = found.get(core.device, 0.0) + seconds / threads
    return found


def may_feed(feeder: DeviceInfo, core: DeviceInfo) -> bool:
    """Whether a device's process may run where this core (or team) computes."""
    if feeder.name == core.name:
        return False
    return not feeder.cores or not core.cores or not set(feeder.cores).isdisjoint(core.cores)


def _seconds(one: Assignment) -> float:
    """Processor time that feeding a device its chunks takes."""
    if one.model is None or one.model.host_overhead is None:
        return 0.0
    sizes = Counter(one.plan.chunks)
    return sum(
        times * float(one.model.host_overhead.time(units)) for units, times in sizes.items()
    )


def _idle(feeder: Assignment, cores: Sequence[Assignment], all_of: Sequence[Candidate]) -> bool:
    """Whether a core that the feeder may use has no share."""
    there = [c.info for c in all_of if c.info.is_core and may_feed(_info(feeder), c.info)]
    working = {core.device for core in cores}
    used = {core for one in cores for core in _info(one).cores}
    free = set(_info(feeder).cores) - used
    return bool(free) or any(info.name not in working for info in there if not info.members)


def _info(one: Assignment) -> DeviceInfo:
    assert one.candidate is not None, "the planner says who it planned for"
    return one.candidate.info
