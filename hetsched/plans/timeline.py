"""What a plan costs: the start and end of every phase of every chunk.

The one judge of plans: planners may estimate, this decides. Ilic & Sousa, section 3; slot reuse
(ring) is ours: a chunk's copy in starts after the copy out of the chunk `slots` before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hetsched.device import ChunkTimeline, Timeline
from hetsched.errors import HetschedError, UsageError
from hetsched.models import DeviceModel
from hetsched.plans.device_plan import DevicePlan, Mode, Overlap, of_kind
from hetsched.plans.duplex_timeline import Interval, Phases, stretched

__all__ = ["ChunkTimeline", "Timeline", "seconds_of", "timeline"]

Spans = list[tuple[Interval, Interval, Interval]]


def timeline(plan: DevicePlan, model: DeviceModel, overlap: Overlap) -> Timeline:
    """When each phase of `plan` starts and ends on a device that behaves like `model`.

    One copy engine copies in the order I1 I2 O1 I3 O2 ..., whatever the slots. With two, copies in
    both directions at once are slowed by the model's `duplex`. Cost O(chunks).

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
        A parameter isn't of its kind; the model says a time that is negative or no number.
    """
    of_kind("plan", plan, DevicePlan)
    of_kind("model", model, DeviceModel)
    of_kind("overlap", overlap, Overlap)
    duplex = model.duplex if overlap is Overlap.FULL else (1.0, 1.0)
    sizes = plan.chunks
    phases = _phases(sizes, model)
    spans: Spans = []
    for chunks in plan.sub_distributions:
        now = spans[-1][2][1] if spans else 0.0
        part = phases[len(spans) : len(spans) + len(chunks)]
        slots = plan.slots if plan.mode is Mode.RING else len(chunks)
        spans += _run(part, slots, overlap, duplex, now)
    return Timeline(spans[-1][2][1] if spans else 0.0, _named(sizes, spans, model))


def seconds_of(curve: Any, units: np.ndarray) -> np.ndarray:
    """`curve.time` of each of `units`; curves that take only scalars work, slower.

    Raises
    ------
    UsageError
        It fails, or says what is negative or no number; errors of ours are passed on.
    """
    try:
        seconds = np.asarray(curve.time(units), dtype=float) + np.zeros(units.shape)
    except HetschedError:
        raise
    except Exception:  # a curve of somebody else may fail on arrays in any way
        flat = [_asked(curve, x) for x in units.ravel().tolist()]
        seconds = np.array(flat).reshape(units.shape)
    sound = seconds >= 0  # not so where it is no number
    if not sound.all():
        first = int(np.argmin(sound))
        raise UsageError(
            f"model: {seconds.flat[first]} seconds for {units.flat[first]:g} units, it must be 0"
            " or more"
        )
    return seconds


def _asked(curve: Any, units: float) -> float:
    try:
        return float(curve.time(units))
    except HetschedError:
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"model: time({units:g}) failed, {said[:200]}") from error


def _phases(sizes: tuple[int, ...], model: DeviceModel) -> list[Phases]:
    units = np.array(sizes, dtype=float)
    nothing = np.zeros(len(sizes))
    copy_in, compute, copy_out = (
        nothing if curve is None else seconds_of(curve, units)
        for curve in (model.h2d, model.compute, model.d2h)
    )
    return list(zip(copy_in.tolist(), compute.tolist(), copy_out.tolist(), strict=True))


def _run(
    phases: Sequence[Phases],
    slots: int,
    overlap: Overlap,
    duplex: tuple[float, float],
    start: float,
) -> Spans:
    """One sub-distribution. A single slot makes everything serial."""
    if overlap is Overlap.NONE or slots == 1:
        return _serial(phases, start)
    if overlap is Overlap.SINGLE:
        return _single(phases, start)
    if min(duplex) < 1:
        return stretched(phases, slots, duplex, start)
    return _full(phases, slots, start)


def _serial(phases: Sequence[Phases], start: float) -> Spans:
    spans: Spans = []
    for copy_in, compute, copy_out in phases:
        arrived = start + copy_in
        computed = arrived + compute
        end = computed + copy_out
        spans.append(((start, arrived), (arrived, computed), (computed, end)))
        start = end
    return spans


def _full(phases: Sequence[Phases], slots: int, start: float) -> Spans:
    spans: Spans = []
    arrived = computed = left = start
    for index, (copy_in, compute, copy_out) in enumerate(phases):
        begin_in = arrived
        if index >= slots:
            begin_in = max(arrived, spans[index - slots][2][1])
        arrived = begin_in + copy_in
        begin = max(arrived, computed)
        computed = begin + compute
        begin_out = max(computed, left)
        left = begin_out + copy_out
        spans.append(((begin_in, arrived), (begin, computed), (begin_out, left)))
    return spans


def _single(phases: Sequence[Phases], start: float) -> Spans:
    """With two slots or more, the engine's order alone keeps a slot from being used too early."""
    inward: list[tuple[Interval, Interval]] = []
    outward: list[Interval] = []
    engine = computed = start
    for index, (copy_in, compute, _) in enumerate(phases):
        arrived = engine + copy_in
        begin = max(arrived, computed)
        computed = begin + compute
        inward.append(((engine, arrived), (begin, computed)))
        engine = arrived
        if index:
            engine = _copy_out(phases[index - 1], inward[index - 1][1][1], engine, outward)
    _copy_out(phases[-1], computed, engine, outward)
    return [(*first, last) for first, last in zip(inward, outward, strict=True)]


def _copy_out(phases: Phases, computed: float, engine: float, spans: list[Interval]) -> float:
    begin = max(engine, computed)
    spans.append((begin, begin + phases[2]))
    return begin + phases[2]


def _named(sizes: Sequence[int], spans: Spans, model: DeviceModel) -> tuple[ChunkTimeline, ...]:
    has_in, has_out = model.h2d is not None, model.d2h is not None
    return tuple(
        ChunkTimeline(units, copy_in if has_in else None, compute, copy_out if has_out else None)
        for units, (copy_in, compute, copy_out) in zip(sizes, spans, strict=True)
    )
