"""Predicted times of other splits of a load, and of other plans of one device's share."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hetsched.explain import Alternative
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.partition import geometric
from hetsched.planner.analysis.corrections import Corrections, cold_ratios
from hetsched.planner.analysis.device_groups import group_name, groups_of
from hetsched.planner.device_sets.neighbours import co_runners_of
from hetsched.planner.device_sets.team_variants import with_only
from hetsched.planner.host_overhead import plan_with_host_overhead
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.staging_memory import planning_memory
from hetsched.plans.best_plan import compare_plans
from hetsched.plans.device_plan import Overlap
from hetsched.plans.timeline import timeline


def device_alternatives(
    plan: JobPlan, corrections: Corrections
) -> dict[str, tuple[Alternative, ...]]:
    """Return the best plan of each kind for each device with a link, by device.

    Only for the first device of each group (names that differ by a number): the search is slow.
    """
    firsts = {group[0] for group in groups_of([a.device for a in plan.assignments])}
    return {
        assignment.device: _plans_of(
            assignment,
            assignment.candidate,
            assignment.model,
            corrections.get(assignment.device, 1.0),
        )
        for assignment in plan.assignments
        if assignment.device in firsts
        if assignment.candidate is not None and assignment.candidate.info.link
        if assignment.model is not None
    }


def _plans_of(
    assignment: Assignment, candidate: Candidate, model: DeviceModel, correction: float
) -> tuple[Alternative, ...]:
    overlap = Overlap.of(candidate.info.engines)
    memory = planning_memory(candidate)
    best = compare_plans(assignment.plan.share, model, memory, overlap=overlap)
    plans = [
        Alternative(f"best {kind}", correction * seconds)
        for kind, seconds in best.seconds_by_kind.items()
    ]
    serial = timeline(assignment.plan, model, Overlap.NONE).makespan
    return *plans, Alternative("the same chunks without overlap", correction * serial)


def split_alternatives(plan: JobPlan, cache: PlanCache) -> tuple[Alternative, ...]:
    """Return equal shares, and each group of devices alone, or the fastest device alone.

    Devices alone are predicted by their models without the others, if they were measured so; else
    the description says that they are presumed to be as slow as beside the others. In fresh
    processes all are as much slower as the plan.
    """
    load, curves, cold = plan.load, plan.curves, cold_ratios(plan)
    names = [assignment.device for assignment in plan.assignments]
    if len(names) < 2 or not all(name in curves for name in names):
        return ()
    share = -(-load // len(names))
    longest = max(cold[name] * _seconds(curves[name], share) for name in names if name in cold)
    equal = Alternative("equal shares", longest)
    sets = groups_of(names)
    if len(sets) == 1:
        sets = [[min(names, key=lambda name: _seconds(curves[name], load))]]
    alternatives = [_only(members, plan, cache) for members in sets]
    return equal, *(
        msgspec.structs.replace(
            only, seconds=only.seconds * max(cold.get(name, 1.0) for name in members)
        )
        for only, members in zip(alternatives, sets, strict=True)
    )


def _only(names: Sequence[str], plan: JobPlan, cache: PlanCache) -> Alternative:
    """Predict some devices of `plan` without the others."""
    candidates = {a.device: a.candidate for a in plan.assignments if a.candidate is not None}
    variants = {a.device: a.variant for a in plan.assignments}
    infos = {c.info.name: c.info for c in (*candidates.values(), *plan.candidates)}
    chosen = [infos[name] for name in names if name in infos]
    alone = [
        with_only(candidates[name].beside(beside), variants[name])
        for name, beside in co_runners_of(chosen, infos.values()).items()
        if variants[name] in candidates[name].models_beside.get(beside, {})
    ]
    description = f"only {group_name(names)}"
    if len(alone) == len(names):
        seconds = plan_with_host_overhead(plan.load, alone, cache=cache).predicted_seconds
        if seconds is not None:
            return Alternative(description, seconds)
    if any(not info.is_modelled for info in infos.values()):
        description += " (contention as now)"
    curves = [plan.curves[name] for name in names]
    return Alternative(description, geometric(curves, plan.load).makespan)


def _seconds(curve: SpeedFunction, units: int) -> float:
    return float(curve.time(units))
