"""What else a job's time could be, by the plan's models: bounds, other splits, other machines."""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from hetsched.explain import Alternative, WhatIf
from hetsched.job import Schedule
from hetsched.models import PiecewiseLinear, SpeedFunction
from hetsched.partition import geometric
from hetsched.planner.job_planner import plan_job
from hetsched.planner.neighbours import co_runners_of
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.totals import PlanCache, scheduled_plan
from hetsched.planner.variants import rough_seconds
from hetsched.plans import lower_bound, price
from hetsched.plans.bounds import ShareBounds
from hetsched.text import group_name, groups_of

PRECISION = 1e-6
"""Relative error of a bound of all devices, which is never too large."""
LeastSeconds = Callable[[int], float]
"""Units, 1 or more -> the least seconds that they take on a device; rising."""

# ---- bounds


def correction_of(assignment: Assignment) -> float:
    """Return a device's predicted time over that by its phases; 1 without a link.

    Predictions are corrected by the measured times of whole shares. What is shown beside them is
    multiplied by the same ratio; else a bound could exceed the prediction.
    """
    candidate, model = assignment.candidate, assignment.model
    predicted = assignment.predicted_seconds
    if candidate is None or model is None or predicted is None or not candidate.info.link:
        return 1.0
    planned = price(assignment.plan, model, candidate.overlap)
    return predicted / planned if planned > 0 else 1.0


def device_bound(assignment: Assignment) -> float | None:
    """Return the least seconds of any plan for a device with a link; None for other devices."""
    candidate, model = assignment.candidate, assignment.model
    if candidate is None or model is None or not candidate.info.link:
        return None
    share, memory, overlap = assignment.plan.share, candidate.memory, candidate.overlap
    return correction_of(assignment) * lower_bound(share, model, memory, overlap)


def bound_of_plan(plan: JobPlan) -> float | None:
    """Return the least seconds of any split over the plan's devices; None: one has no model.

    With any plans, by the models: a run may take less, as these may be too slow. (Ours.)
    """
    machine = _machine(plan)
    if not machine:
        return None
    corrections = {a.device: correction_of(a) for a in plan.assignments}
    linked: dict[tuple[int, float], LeastSeconds] = {}
    parts: list[LeastSeconds] = []
    for candidate in machine:
        name, (model,) = candidate.info.name, candidate.models.values()
        assert model is not None, "of _machine"
        if not candidate.info.link:
            # Not the model's total: the plan's curve has the calls of the kernel.
            parts.append(plan.curves.get(name, model.total).time)
            continue
        key = id(model), corrections.get(name, 1.0)
        if key not in linked:
            bounds = ShareBounds(plan.load, model, candidate.memory, candidate.overlap, key[1])
            linked[key] = functools.cache(bounds.seconds)
        parts.append(linked[key])
    return machine_bound(plan.load, parts)


def machine_bound(load: int, devices: Sequence[LeastSeconds]) -> float:
    """Return the least seconds of `load` whole units, 1 or more, within `PRECISION`."""
    counts = Counter(devices)  # equal devices
    low, done = 0.0, dict.fromkeys(counts, 0)
    high = min(float(least(-(-load // count))) for least, count in counts.items())
    beyond = dict.fromkeys(counts, load)
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        most = {
            least: bisect_right(range(1, beyond[least] + 1), middle, lo=done[least], key=least)
            for least in counts
        }
        if sum(count * most[least] for least, count in counts.items()) < load:
            low, done = middle, most
        else:
            high, beyond = middle, most
    return low


# ---- other splits and schedules


def schedule_alternatives(plan: JobPlan) -> dict[str, tuple[Alternative, ...]]:
    """Return the times of other schedules for devices with a link; "best" is a ring.

    Only for the first device of each group, as the search is slow.
    """
    firsts = {group[0] for group in groups_of([a.device for a in plan.assignments])}
    alternatives = {}
    for assignment in plan.assignments:
        candidate, model = assignment.candidate, assignment.model
        if assignment.device not in firsts or candidate is None or model is None:
            continue
        if candidate.info.link:
            share, memory, overlap = assignment.plan.share, candidate.memory, candidate.overlap
            chosen = "best" if candidate.schedule == "ring" else candidate.schedule
            correction = correction_of(assignment)
            known: tuple[Schedule, ...] = ("best", "multi-installment", "factoring")
            others = {
                schedule: scheduled_plan(schedule, share, model, memory, overlap)
                for schedule in known
                if schedule != chosen
            }
            alternatives[assignment.device] = tuple(
                Alternative(schedule, correction * price(other, model, overlap))
                for schedule, other in others.items()
            )
    return alternatives


def split_alternatives(plan: JobPlan, cache: PlanCache) -> tuple[Alternative, ...]:
    """Return equal shares, and each group of devices alone, or the fastest device alone.

    These by their models without the others, if they were measured so; else "contention as now".
    """
    load, curves = plan.load, plan.curves
    names = [assignment.device for assignment in plan.assignments]
    if len(names) < 2 or not all(name in curves for name in names):
        return ()
    share = -(-load // len(names))
    slowest = max(float(curves[name].time(share)) for name in names)
    equal = Alternative("equal shares", slowest)
    sets = groups_of(names)
    if len(sets) == 1:
        sets = [[min(names, key=lambda name: float(curves[name].time(load)))]]
    return equal, *(_only(members, plan, cache) for members in sets)


def _only(names: Sequence[str], plan: JobPlan, cache: PlanCache) -> Alternative:
    candidates = {a.device: a.candidate for a in plan.assignments if a.candidate is not None}
    variants = {a.device: a.variant for a in plan.assignments}
    infos = {c.info.name: c.info for c in (*candidates.values(), *plan.candidates)}
    chosen = [infos[name] for name in names if name in infos]
    alone = [
        candidates[name].beside(beside).with_only(variants[name])
        for name, beside in co_runners_of(chosen, infos.values()).items()
        if variants[name] in candidates[name].models_beside.get(beside, {})
    ]
    description = f"only {group_name(names)}"
    if len(alone) == len(names):
        seconds = plan_job(plan.load, alone, cache=cache).predicted_seconds
        if seconds is not None:
            return Alternative(description, seconds)
    if any(not info.is_modelled for info in infos.values()):
        description += " (contention as now)"
    curves = [plan.curves[name] for name in names]
    return Alternative(description, geometric(curves, plan.load).makespan)


# ---- other machines


def what_if(plan: JobPlan, cache: PlanCache) -> tuple[WhatIf, ...]:
    """Return the plan's time with a faster link, and with another device of each kind."""
    machine = [_without_history(candidate) for candidate in _machine(plan)]
    if not machine or plan.predicted_seconds is None:
        return ()

    def seconds_of(changed: Sequence[Candidate]) -> float | None:
        return plan_job(plan.load, changed, cache=cache).predicted_seconds

    base = seconds_of(machine)
    results = []
    for description, changed in _changed_machines(machine) if base else ():
        seconds = seconds_of(changed)
        if base and seconds is not None and math.isfinite(seconds):
            ratio = seconds / base
            results.append(WhatIf(description, plan.predicted_seconds * ratio, 1 - ratio))
    return tuple(results)


def _changed_machines(machine: list[Candidate]) -> list[tuple[str, list[Candidate]]]:
    linked = [candidate.info.name for candidate in machine if candidate.info.link]
    changes = []
    if linked:
        faster = [_with_faster_link(candidate) for candidate in machine]
        changes.append((f"a link twice as fast for {group_name(linked)}", faster))
    for group in groups_of([candidate.info.name for candidate in machine]):
        first = next(candidate for candidate in machine if candidate.info.name == group[0])
        another = replace(first, info=msgspec.structs.replace(first.info, name="another"))
        assumption = "" if first.info.is_modelled else " (assuming no contention)"
        changes.append((f"another device like {group[0]}{assumption}", [*machine, another]))
    return changes


def _with_faster_link(candidate: Candidate) -> Candidate:
    models = {}
    for variant, model in candidate.models.items():
        models[variant] = model
        if model is not None and model.h2d is not None and model.d2h is not None:
            h2d, d2h = DoubledSpeed(model.h2d), DoubledSpeed(model.d2h)
            models[variant] = replace(model, h2d=h2d, d2h=d2h)
    return replace(candidate, models=models)


@dataclass(frozen=True)
class DoubledSpeed:
    curve: SpeedFunction

    def time(self, x: Any, /) -> Any:
        return self.curve.time(x) / 2

    def speed(self, x: Any, /) -> Any:
        return self.curve.speed(x) * 2


# ---- the devices of a plan


def _machine(plan: JobPlan) -> list[Candidate]:
    """Return the devices that have a share or could have had one, each with its variant only.

    None if one with a share has no model.
    """
    devices = {}
    for a in plan.assignments:
        if a.candidate is None or a.model is None:
            return []
        devices[a.device] = replace(a.candidate, models={a.variant: a.model})
    units = max(1, plan.load // max(1, len(plan.assignments)))
    for candidate in plan.candidates:
        name = candidate.info.name
        models = {v: model for v, model in candidate.models.items() if model is not None}
        if name not in devices and name in plan.curves and models:
            best = min(models, key=lambda v: rough_seconds(models[v], units))
            devices[name] = replace(candidate, models={best: models[best]})
    return list(devices.values())


def _without_history(candidate: Candidate) -> Candidate:
    """Return the candidate without what its latest runs say of other machines' shares."""
    models = {
        variant: replace(model, total=PiecewiseLinear())
        if model and candidate.info.link
        else model
        for variant, model in candidate.models.items()
    }
    return replace(candidate, models=models, last_plan=None, size_trial=None, race=None)
