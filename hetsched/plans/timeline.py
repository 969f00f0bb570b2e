"""The predicted timeline of a plan: start and end of every phase of every chunk.

Searches may estimate; the makespan of a timeline is decisive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hetsched.device import ChunkTimeline, Timeline
from hetsched.models import DeviceModel
from hetsched.plans.device_plan import DevicePlan, Mode, Overlap, require_type
from hetsched.plans.phase_costs import phase_seconds
from hetsched.plans.recurrence import (
    FLOATS,
    MAX_SLOTS_IN_USE,
    Recurrence,
    copy_in_rule,
    same_slots,
)

__all__ = ["ChunkTimeline", "Timeline", "timeline"]

Interval = tuple[float, float]
ChunkSpans = tuple[Interval, Interval, Interval]
"""Copy in, compute and copy out of a chunk, seconds."""


def timeline(plan: DevicePlan, model: DeviceModel, overlap: Overlap) -> Timeline:
    """Predict when each phase of `plan` starts and ends on a device described by `model`.

    One copy engine copies in the order I1 I2 O1 I3 O2 ... regardless of slots. With two, the
    model's `duplex` slows down simultaneous copies in both directions. O(chunks).

    Parameters
    ----------
    plan : DevicePlan
    model : DeviceModel
        `h2d` or `d2h` None: no such phase.
    overlap : Overlap

    Returns
    -------
    Timeline
        Seconds from the start of the first chunk.

    Raises
    ------
    UsageError
        A parameter has the wrong type; the model returns a negative time or NaN.
    """
    require_type("plan", plan, DevicePlan)
    require_type("model", model, DeviceModel)
    require_type("overlap", overlap, Overlap)
    sizes = plan.chunks
    units = np.array(sizes, dtype=float)
    phases = [seconds.tolist() for seconds in phase_seconds(model, units)]
    spans: list[ChunkSpans] = []
    end = 0.0
    for chunks in plan.sub_distributions:
        rows = slice(len(spans), len(spans) + len(chunks))
        slots = plan.slots if plan.mode is Mode.RING else len(chunks)
        spans += _spans([phase[rows] for phase in phases], slots, model, overlap, end)
        end = spans[-1][2][1]
    return Timeline(end, _records(sizes, spans, model))


def _spans(
    phases: Sequence[list[float]],
    slots: int,
    model: DeviceModel,
    overlap: Overlap,
    start: float,
) -> Iterator[ChunkSpans]:
    """Return the spans of one sub-distribution that starts at `start`."""
    slots = min(slots, MAX_SLOTS_IN_USE.get(overlap, slots))
    rule = copy_in_rule(overlap, slots, model.duplex)
    recurrence = Recurrence(start, FLOATS, rule, same_slots(slots))
    spans = [recurrence.append(*chunk) for chunk in zip(*phases, strict=True)]
    outs = zip(recurrence.out_begins, recurrence.out_ends, strict=True)
    for (begin_in, end_in, begin, end), out in zip(spans, outs, strict=True):
        yield (begin_in, end_in), (begin, end), out


def _records(
    sizes: Sequence[int], spans: Sequence[ChunkSpans], model: DeviceModel
) -> tuple[ChunkTimeline, ...]:
    has_in, has_out = model.h2d is not None, model.d2h is not None
    return tuple(
        ChunkTimeline(units, copy_in if has_in else None, compute, copy_out if has_out else None)
        for units, (copy_in, compute, copy_out) in zip(sizes, spans, strict=True)
    )
