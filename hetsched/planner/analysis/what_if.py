"""What other plans and other machines would take, by the same models as the plan itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from hetsched.explain import Way, WhatIf
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, PiecewiseLinear, SpeedFunction
from hetsched.partition import geometric
from hetsched.planner.analysis.machine_bound import MachineDevice, fluid_bound, whole_unit_bound
from hetsched.planner.host_overhead import plan_with_host_overhead
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.staging_memory import planning_memory
from hetsched.plans.best_plan import compare_plans
from hetsched.plans.bounds.lower_bound import lower_bound
from hetsched.plans.device_plan import Overlap
from hetsched.plans.timeline import timeline

KNOWN = 9
"""Runs of a variant in what is asked of the planner: it has nothing to try out."""
MUCH = 10_000
"""Units times devices with a link up to which machines are planned for. Arbitrary: a second."""
NAMED = 2
"""Devices that are named one by one."""


def load_of(plan: JobPlan) -> int:
    """Units of all shares."""
    return sum(one.plan.share for one in plan.assignments)


def bounds(plan: JobPlan, cache: PlanCache) -> tuple[float, float] | None:
    """Seconds of the fluid and of the whole-unit bound; None where a device isn't known."""
    parts = [_part(*known) for known in _weighed(plan)]
    if not parts or _unknown(plan):
        return None
    load = load_of(plan)
    return fluid_bound(load, parts, cache=cache), whole_unit_bound(load, parts, cache=cache)


def device_bound(one: Assignment) -> float | None:
    """Seconds that any plan for a device with a link takes at least; None for other devices."""
    candidate, model = one.candidate, one.model
    if candidate is None or model is None or not candidate.info.link:
        return None
    overlap = Overlap.of(candidate.info.engines)
    return lower_bound(one.plan.share, model, planning_memory(candidate), overlap)


def device_ways(plan: JobPlan) -> dict[str, tuple[Way, ...]]:
    """Device with a link -> the best plans of each kind for the share that it was given.

    Of the first of those whose names differ by a number only: finding plans takes time.
    """
    names = [names[0] for names in _by_stem([one.device for one in plan.assignments])]
    return {
        one.device: _device_ways(one, one.candidate, one.model)
        for one in plan.assignments
        if one.device in names
        if one.candidate is not None and one.candidate.info.link and one.model is not None
    }


def _device_ways(one: Assignment, candidate: Candidate, model: DeviceModel) -> tuple[Way, ...]:
    overlap = Overlap.of(candidate.info.engines)
    found = compare_plans(one.plan.share, model, planning_memory(candidate), overlap=overlap)
    ways = [Way(f"best {kind}", seconds) for kind, seconds in found.others.items()]
    serial = timeline(one.plan, model, Overlap.NONE).makespan
    return *ways, Way("these chunks one after another", serial)


def machine_ways(plan: JobPlan) -> tuple[Way, ...]:
    """Other splits: equal shares; each group of devices alone, or the fastest device alone."""
    load, curves = load_of(plan), plan.curves
    names = [one.device for one in plan.assignments]
    if len(names) < 2 or not all(name in curves for name in names):
        return ()
    equal = -(-load // len(names))
    shares = Way("equal shares", max(_time(curves[name], equal) for name in names))
    groups = _by_stem(names)
    if len(groups) > 1:
        return shares, *(_alone(members, curves, load) for members in groups)
    fastest = min(names, key=lambda name: _time(curves[name], load))
    return shares, _alone([fastest], curves, load)


def _by_stem(names: Sequence[str]) -> list[list[str]]:
    """Devices whose names differ by their numbers only."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(name.rstrip("0123456789"), []).append(name)
    return list(found.values())


def _alone(names: Sequence[str], curves: Mapping[str, SpeedFunction], load: int) -> Way:
    seconds = geometric([curves[name] for name in names], load).makespan
    return Way(f"only {_named(names)}", seconds)


def _named(names: Sequence[str]) -> str:
    if len(names) <= NAMED:
        return " and ".join(names)
    return f"{names[0]} to {names[-1]}"


def _time(curve: SpeedFunction, units: int) -> float:
    return float(curve.time(units))


# what another machine would do


def what_if(plan: JobPlan, cache: PlanCache) -> tuple[WhatIf, ...]:
    """What changes of the machine would do, as the planner plans for them."""
    known = _weighed(plan)
    if not known or _unknown(plan) or plan.predicted_seconds is None:
        return ()
    load = load_of(plan)
    now = [_only(*one) for one in known]
    quick = load * sum(one.info.link for one in now) > MUCH
    base = _judged(load, now, quick, cache)
    if not base:
        return ()
    found = []
    for what, change in _changes(now).items():
        seconds = _judged(load, change(now), quick, cache)
        if seconds is not None and math.isfinite(seconds):
            ratio = seconds / base
            found.append(WhatIf(what, plan.predicted_seconds * ratio, 1 - ratio))
    return tuple(found)


def _judged(
    load: int, candidates: Sequence[Candidate], quick: bool, cache: PlanCache
) -> float | None:
    """What the planner predicts. `quick`: the bound, close to that where loads are large."""
    if quick:
        devices = [_part(one, *_known(one)) for one in candidates]
        return whole_unit_bound(load, devices, cache=cache)
    return plan_with_host_overhead(load, candidates, cache=cache).predicted_seconds


def _known(one: Candidate) -> tuple[str, DeviceModel]:
    """Its one variant and model, as `_only` left them."""
    ((variant, model),) = one.models.items()
    assert model is not None
    return variant, model


Change = Callable[[list[Candidate]], list[Candidate]]


def _changes(now: Sequence[Candidate]) -> dict[str, Change]:
    """What can be changed about devices like these."""
    linked = [one for one in now if one.info.link]
    found: dict[str, Change] = {}
    if linked:
        names = _named([one.info.name for one in linked])
        found[f"a link twice as fast for {names}"] = _each(_faster_link)
        found[f"twice the speed of {names} at computing"] = _each(_faster_compute)
        found[f"twice the memory on {names}"] = _each(_more_memory)
        if any(one.info.engines < 2 for one in linked):
            found[f"one more copy engine in {names}"] = _each(_more_engines)
    for members in _by_stem([one.info.name for one in now]):
        first = next(one for one in now if one.info.name == members[0])
        found[f"another device like {members[0]}"] = _with_another(first)
    return found


def _each(change: Callable[[Candidate], Candidate]) -> Change:
    return lambda now: [change(one) if one.info.link else one for one in now]


def _with_another(one: Candidate) -> Change:
    other = replace(one, info=msgspec.structs.replace(one.info, name="another"))
    return lambda now: [*now, other]


def _faster_link(one: Candidate) -> Candidate:
    return _remodelled(one, lambda m: replace(m, h2d=_half(m.h2d), d2h=_half(m.d2h)))


def _faster_compute(one: Candidate) -> Candidate:
    return _remodelled(one, lambda m: replace(m, compute=Half(m.compute)))


def _more_memory(one: Candidate) -> Candidate:
    limit = one.demand.limit
    return replace(one, demand=replace(one.demand, limit=None if limit is None else 2 * limit))


def _more_engines(one: Candidate) -> Candidate:
    engines = min(2, one.info.engines + 1)
    return replace(one, info=msgspec.structs.replace(one.info, engines=engines))


def _remodelled(one: Candidate, change: Callable[[DeviceModel], DeviceModel]) -> Candidate:
    models = {name: None if model is None else change(model) for name, model in one.models.items()}
    return replace(one, models=models)


@dataclass(frozen=True)
class Half:
    """A curve of half the time."""

    curve: SpeedFunction

    def time(self, x: Any, /) -> Any:
        return self.curve.time(x) / 2

    def speed(self, x: Any, /) -> Any:
        return self.curve.speed(x) * 2


def _half(curve: SpeedFunction | None) -> SpeedFunction | None:
    return None if curve is None else Half(curve)


# what the plan knew


def _weighed(plan: JobPlan) -> list[tuple[Candidate, str, DeviceModel]]:
    """The devices that could have had a share and are known: candidate, variant, model."""
    found = {
        one.device: (one.candidate, one.variant, one.model)
        for one in plan.assignments
        if one.candidate is not None and one.model is not None
    }
    units = max(1, load_of(plan) // max(1, len(plan.assignments)))
    for candidate in plan.candidates:
        name = candidate.info.name
        models = {v: model for v, model in candidate.models.items() if model is not None}
        if name not in found and name in plan.curves and models:
            best = min(models, key=lambda v: _time(_weighty(models[v]), units))
            found[name] = candidate, best, models[best]
    return list(found.values())


def _weighty(model: DeviceModel) -> SpeedFunction:
    """What tells variants apart; of a device with a link whole shares may never have run."""
    return model.compute if model.link else model.total


def _unknown(plan: JobPlan) -> bool:
    return any(one.candidate is None or one.model is None for one in plan.assignments)


def _only(candidate: Candidate, variant: str, model: DeviceModel) -> Candidate:
    """`candidate` with nothing to choose; plans of a link aren't scaled by what shares took."""
    if candidate.info.link:
        model = replace(model, total=PiecewiseLinear())
    return replace(
        candidate,
        models={variant: model},
        run_counts={variant: KNOWN},
        host_overhead_seconds=0.0,
        uses_measured_total=False,
    )


def _part(candidate: Candidate, variant: str, model: DeviceModel) -> MachineDevice:
    info = candidate.info
    memory: MemoryDemand | None = planning_memory(candidate) if info.link else None
    return MachineDevice(info.name, model, memory, Overlap.of(info.engines) if info.link else None)
