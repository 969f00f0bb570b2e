"""Whether a device with a link keeps its last chunks: a plan that gains little may only be noise.

The search finds the plan that the curves flatter most (Smith & Winkler, The Optimizer's Curse,
2006). With straight lines all sizes share the noise of a few parameters. Where a phase follows its
sizes, each has noise of its own, and sizes never run are guesses; the last plan's have been run.
"""

from __future__ import annotations

from typing import Any

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.plans.device_plan import DevicePlan, Overlap, fits
from hetsched.plans.timeline import timeline

MIN_GAIN = 0.01
"""Relative gain for which the chunks of the last plan are given up. Arbitrary: with more a
plan that is 3 % longer than necessary may be kept, as predictions err by as much again."""

MIN_UNMEASURED_GAIN = 0.02
"""Gain for which a plan with sizes never run replaces one whose sizes have been run. Smaller gains
are left to trials (`planner.size_trials`), which risk a few chunks."""


def kept_plan(
    last: DevicePlan | None,
    best: DevicePlan,
    model: DeviceModel,
    memory: MemoryDemand,
    overlap: Overlap,
) -> DevicePlan:
    """Return `last` if it is for the same share and `best` gains little; else `best`.

    Parameters
    ----------
    last : DevicePlan or None
    best : DevicePlan
        The best plan by the present model.
    model : DeviceModel
    memory : MemoryDemand
    overlap : Overlap
    """
    if last is None or last == best or last.share != best.share or is_straight(model):
        return best
    if not fits(last, memory):
        return best
    gain = 1 - _seconds(best, model, overlap) / _seconds(last, model, overlap)
    is_new = _has_unmeasured(best, model) and not _has_unmeasured(last, model)
    return last if gain < (MIN_UNMEASURED_GAIN if is_new else MIN_GAIN) else best


def _has_unmeasured(plan: DevicePlan, model: DeviceModel) -> bool:
    """Return whether the kernel was never run with one of these sizes."""
    points: Any = getattr(model.compute, "points", ())
    return not set(plan.chunks) <= {float(point[0]) for point in points}


def is_straight(model: DeviceModel) -> bool:
    """Return whether all phases are straight lines."""
    phases = (model.h2d, model.compute, model.d2h)
    return all(getattr(phase, "gap", None) is not None for phase in phases if phase is not None)


def _seconds(plan: DevicePlan, model: DeviceModel, overlap: Overlap) -> float:
    return timeline(plan, model, overlap).makespan
