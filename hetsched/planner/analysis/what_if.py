"""What-if analysis: the job's time on other machines by the plan's models; the plan's bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from hetsched.explain import WhatIf
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, PiecewiseLinear, SpeedFunction
from hetsched.planner.analysis.corrections import Corrections
from hetsched.planner.analysis.device_groups import group_name, groups_of
from hetsched.planner.analysis.machine_bound import (
    MachineDevice,
    fluid_bound,
    whole_unit_bound,
)
from hetsched.planner.host_overhead import plan_with_host_overhead
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.staging_memory import planning_memory
from hetsched.plans.bounds.lower_bound import lower_bound
from hetsched.plans.device_plan import Overlap

ENOUGH_RUNS = 9
"""Run count of a changed machine's only variants: enough that the planner explores nothing."""
MAX_PLANNED_SIZE = 10_000
"""Units times devices with a link up to which changed machines are planned, in about a second;
larger ones only get bounds. Arbitrary."""

Change = Callable[[list[Candidate]], list[Candidate]]


@dataclass(frozen=True)
class _MeasuredDevice:
    """A candidate with one variant and its model."""

    candidate: Candidate
    variant: str
    model: DeviceModel


def plan_bounds(
    plan: JobPlan, corrections: Corrections, cache: PlanCache
) -> tuple[float, float] | None:
    """Return the fluid and the whole-unit bound, seconds; None if a device has no model."""
    devices = [
        _machine_device(d.candidate, d.model, corrections.get(d.candidate.info.name, 1.0))
        for d in _measured_devices(plan)
    ]
    if not devices or _has_unmeasured_device(plan):
        return None
    return (
        fluid_bound(plan.load, devices, cache=cache),
        whole_unit_bound(plan.load, devices, cache=cache),
    )


def device_bound(assignment: Assignment, correction: float = 1.0) -> float | None:
    """Return the minimum seconds of any plan for a device with a link; None for other devices."""
    candidate, model = assignment.candidate, assignment.model
    if candidate is None or model is None or not candidate.info.link:
        return None
    overlap = Overlap.of(candidate.info.engines)
    memory = planning_memory(candidate)
    return correction * lower_bound(assignment.plan.share, model, memory, overlap)


def what_if(plan: JobPlan, cache: PlanCache) -> tuple[WhatIf, ...]:
    """Return changes of the machine with their predicted times."""
    devices = _measured_devices(plan)
    if not devices or _has_unmeasured_device(plan) or plan.predicted_seconds is None:
        return ()
    machine = [_with_one_variant(device) for device in devices]
    size = plan.load * sum(candidate.info.link for candidate in machine)
    predict = _bound_seconds if size > MAX_PLANNED_SIZE else _planned_seconds
    base = predict(plan.load, machine, cache)
    if not base:
        return ()
    results = []
    for description, change in _changes(machine).items():
        seconds = predict(plan.load, change(machine), cache)
        if seconds is not None and math.isfinite(seconds):
            ratio = seconds / base
            results.append(WhatIf(description, plan.predicted_seconds * ratio, 1 - ratio))
    return tuple(results)


def _planned_seconds(load: int, machine: Sequence[Candidate], cache: PlanCache) -> float | None:
    return plan_with_host_overhead(load, machine, cache=cache).predicted_seconds


def _bound_seconds(load: int, machine: Sequence[Candidate], cache: PlanCache) -> float | None:
    """Return the bound, which is close to the plan for large loads."""
    devices = []
    for candidate in machine:
        (model,) = candidate.models.values()
        assert model is not None, "set by _with_one_variant"
        devices.append(_machine_device(candidate, model))
    return whole_unit_bound(load, devices, cache=cache)


def _measured_devices(plan: JobPlan) -> list[_MeasuredDevice]:
    """Return the devices with a model that have a share or could have had one."""
    devices = {
        a.device: _MeasuredDevice(a.candidate, a.variant, a.model)
        for a in plan.assignments
        if a.candidate is not None and a.model is not None
    }
    units = max(1, plan.load // max(1, len(plan.assignments)))
    for candidate in plan.candidates:
        name = candidate.info.name
        models = {v: model for v, model in candidate.models.items() if model is not None}
        if name not in devices and name in plan.curves and models:
            best = min(models, key=lambda v: float(_comparable(models[v]).time(units)))
            devices[name] = _MeasuredDevice(candidate, best, models[best])
    return list(devices.values())


def _comparable(model: DeviceModel) -> SpeedFunction:
    """Return the curve to compare variants by; with a link, there may be no whole-share times."""
    return model.compute if model.link else model.total


def _has_unmeasured_device(plan: JobPlan) -> bool:
    return any(a.candidate is None or a.model is None for a in plan.assignments)


def _with_one_variant(device: _MeasuredDevice) -> Candidate:
    """Return the candidate with one variant, and without correction by its latest shares."""
    candidate, model = device.candidate, device.model
    if candidate.info.link:
        model = replace(model, total=PiecewiseLinear())
    return replace(
        candidate,
        models={device.variant: model},
        run_counts={device.variant: ENOUGH_RUNS},
        host_overhead_seconds=0.0,
        uses_measured_total=False,
        last_plan=None,
    )


def _machine_device(
    candidate: Candidate, model: DeviceModel, correction: float = 1.0
) -> MachineDevice:
    info = candidate.info
    memory: MemoryDemand | None = planning_memory(candidate) if info.link else None
    overlap = Overlap.of(info.engines) if info.link else None
    return MachineDevice(info.name, model, memory, overlap, correction)


def _changes(machine: Sequence[Candidate]) -> dict[str, Change]:
    """Return changes of the machine by description."""
    linked = [candidate for candidate in machine if candidate.info.link]
    changes: dict[str, Change] = {}
    if linked:
        names = group_name([candidate.info.name for candidate in linked])
        changes[f"a link twice as fast for {names}"] = _for_linked(_with_faster_link)
        changes[f"twice the compute speed of {names}"] = _for_linked(_with_faster_compute)
        changes[f"twice the memory of {names}"] = _for_linked(_with_more_memory)
        if any(candidate.info.engines < 2 for candidate in linked):
            changes[f"one more copy engine in {names}"] = _for_linked(_with_more_engines)
    for names_of_group in groups_of([candidate.info.name for candidate in machine]):
        first = next(c for c in machine if c.info.name == names_of_group[0])
        assumption = "" if first.info.is_modelled else " (assuming no contention)"
        changes[f"another device like {first.info.name}{assumption}"] = _with_another(first)
    return changes


def _for_linked(change: Callable[[Candidate], Candidate]) -> Change:
    return lambda machine: [change(c) if c.info.link else c for c in machine]


def _with_another(candidate: Candidate) -> Change:
    info = msgspec.structs.replace(candidate.info, name="another")
    return lambda machine: [*machine, replace(candidate, info=info)]


def _with_faster_link(candidate: Candidate) -> Candidate:
    def change(model: DeviceModel) -> DeviceModel:
        h2d = None if model.h2d is None else DoubledSpeed(model.h2d)
        d2h = None if model.d2h is None else DoubledSpeed(model.d2h)
        return replace(model, h2d=h2d, d2h=d2h)

    return _with_models(candidate, change)


def _with_faster_compute(candidate: Candidate) -> Candidate:
    return _with_models(candidate, lambda m: replace(m, compute=DoubledSpeed(m.compute)))


def _with_models(candidate: Candidate, change: Callable[[DeviceModel], DeviceModel]) -> Candidate:
    models = {v: None if m is None else change(m) for v, m in candidate.models.items()}
    return replace(candidate, models=models)


def _with_more_memory(candidate: Candidate) -> Candidate:
    limit = candidate.demand.limit
    demand = replace(candidate.demand, limit=None if limit is None else 2 * limit)
    return replace(candidate, demand=demand)


def _with_more_engines(candidate: Candidate) -> Candidate:
    engines = min(2, candidate.info.engines + 1)
    return replace(candidate, info=msgspec.structs.replace(candidate.info, engines=engines))


@dataclass(frozen=True)
class DoubledSpeed:
    """A curve with twice the speed of another."""

    curve: SpeedFunction

    def time(self, x: Any, /) -> Any:
        return self.curve.time(x) / 2

    def speed(self, x: Any, /) -> Any:
        return self.curve.speed(x) * 2
