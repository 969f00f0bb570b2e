"""Whether a device with a link keeps its last chunks: a plan that gains little may only be noise.

The search finds the plan that the curves flatter most (Smith & Winkler, The Optimizer's Curse,
2006). With straight lines, or a cost of each call, all sizes share the noise of a few parameters.
Where a phase follows its sizes, each has noise of its own, and sizes never run are guesses. So the
best plan must gain more than the standard error of its time: equal chunks of a size run once may
all be as wrong as that run, while the errors of many sizes average.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, PhaseCurve, SpeedFunction
from hetsched.plans.device_plan import DevicePlan, Overlap, fits
from hetsched.plans.timeline import timeline

MIN_GAIN = 0.005
"""Relative gain below which the chunks of the last plan are always kept. Arbitrary."""
NOISE = 0.02
"""Standard deviation of the logarithm of a size's time in one run, for the error of a plan's time:
that gain is as likely to be luck."""
UNMEASURED_RUNS = 0.5
"""Runs that the time of a size never run counts as: it is a guess between others. Arbitrary."""
MAX_ADJUSTMENT = 0.05
"""Relative change of the share up to which the last chunks are adjusted to it. Arbitrary."""

Chunks = tuple[int, ...]


def kept_plan(
    last: DevicePlan | None,
    best: DevicePlan,
    model: DeviceModel,
    memory: MemoryDemand,
    overlap: Overlap,
) -> DevicePlan:
    """Return `last`, adjusted to the share, if `best` gains little over it; else `best`.

    Parameters
    ----------
    last : DevicePlan or None
        Of a share that differs by at most `MAX_ADJUSTMENT`; else it isn't kept.
    best : DevicePlan
        The best plan by the present model.
    model : DeviceModel
    memory : MemoryDemand
    overlap : Overlap
    """
    if last is None or last == best or _follows_rules(model):
        return best
    kept = last
    if last.share != best.share:
        changed = adjusted(last, best.share, model, overlap)
        if changed is None:
            return best
        kept = changed
    if not fits(kept, memory):
        return best
    gain = 1 - _seconds(best, model, overlap) / _seconds(kept, model, overlap)
    return kept if gain < max(MIN_GAIN, _error(best, model)) else best


def adjusted(
    plan: DevicePlan, share: int, model: DeviceModel, overlap: Overlap
) -> DevicePlan | None:
    """Return `plan` with a few units more or less, where they change its time most favourably.

    Parameters
    ----------
    plan : DevicePlan
    share : int, units
    model : DeviceModel
    overlap : Overlap

    Returns
    -------
    DevicePlan or None
        None: the share differs by more than `MAX_ADJUSTMENT`, or the plan has several
        sub-distributions.
    """
    more = share - plan.share
    if abs(more) > MAX_ADJUSTMENT * plan.share or len(plan.sub_distributions) != 1:
        return None
    plans = [
        replace(plan, sub_distributions=(chunks,), slots=min(plan.slots, len(chunks)))
        for chunks in _adjusted_chunks(plan.chunks, more)
    ]
    return min(plans, key=lambda changed: _seconds(changed, model, overlap), default=None)


def _adjusted_chunks(chunks: Chunks, more: int) -> Iterator[Chunks]:
    """Yield `chunks` with `more` units: in one chunk, a unit each in some, or as a further one."""
    for size in dict.fromkeys(chunks):
        index = chunks.index(size)
        if size + more >= 0:
            changed = (size + more,) if size + more else ()
            yield (*chunks[:index], *changed, *chunks[index + 1 :])
    if more > 0:
        yield (*chunks, more)
    if abs(more) <= len(chunks):
        by_size = sorted(range(len(chunks)), key=lambda index: chunks[index])
        changed_ones = set(by_size[-abs(more) :])
        unit = 1 if more > 0 else -1
        sizes = [size + unit * (index in changed_ones) for index, size in enumerate(chunks)]
        yield tuple(filter(None, sizes))


def _error(plan: DevicePlan, model: DeviceModel) -> float:
    """Return the relative standard error of the plan's time, as of a sum over its sizes.

    Equal chunks of a size that was run once may all be as wrong as that run; many sizes average.
    """
    knots = model.compute.knots() if isinstance(model.compute, PhaseCurve) else ()
    runs = {knot.units: float(knot.count) for knot in knots}
    units = Counter[int]()
    for size in plan.chunks:
        units[size] += size
    variances = (
        (part / plan.share) ** 2 / runs.get(size, UNMEASURED_RUNS) for size, part in units.items()
    )
    return NOISE * math.sqrt(sum(variances))


def is_straight(model: DeviceModel) -> bool:
    """Return whether all phases are straight lines."""
    return all(map(_is_line, _phases(model)))


def _follows_rules(model: DeviceModel) -> bool:
    """Return whether few parameters describe each phase: sizes have no noise of their own."""
    return all(
        _is_line(phase) or (isinstance(phase, PhaseCurve) and phase.follows_rule)
        for phase in _phases(model)
    )


def _is_line(phase: SpeedFunction) -> bool:
    return getattr(phase, "gap", None) is not None


def _phases(model: DeviceModel) -> list[SpeedFunction]:
    return [phase for phase in (model.h2d, model.compute, model.d2h) if phase is not None]


def _seconds(plan: DevicePlan, model: DeviceModel, overlap: Overlap) -> float:
    return timeline(plan, model, overlap).makespan
