"""The terms of the bounds, by number of chunks: engines, critical paths, memory over time.

The averaged paths are the dual of geometric growth from chunk to chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hetsched.plans.bounds.convex_minorant import (
    ConvexCurve,
    Line,
    convex_minorant,
    tangent_below,
)
from hetsched.plans.bounds.sampled_costs import SampledCosts
from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Floats

BLOCK = 512
"""Numbers of chunks that are evaluated together."""
RELATIVE_ROUNDING = 1e-9
"""Slopes that differ by less count as equal."""
MAX_COUNTS = 16 * BLOCK
"""Numbers of chunks that are all evaluated; bounds of more chunks are a little lower."""

Raise = Callable[[Floats, Floats], Floats]
"""Numbers of chunks and their bounds -> higher bounds."""


def unchanged(counts: Floats, bounds: Floats) -> Floats:
    """Return `bounds`."""
    return bounds


@dataclass(frozen=True)
class BoundInputs:
    """A device's costs as used by bounds; phases in the order copy in, compute, copy out.

    Attributes
    ----------
    minorants : three ConvexCurve
        Convex curves below the phases.
    lines : list of three Line
        Lines below the minorants, each tight at a different size.
    cheapest : three float, seconds
        Each phase of its cheapest chunk.
    largest : int, units
        The largest chunk.
    room : int, units
        Capacity of device memory.
    duplex : (2,) float
    """

    minorants: tuple[ConvexCurve, ConvexCurve, ConvexCurve]
    lines: list[tuple[Line, Line, Line]]
    cheapest: tuple[float, float, float]
    largest: int
    room: int
    duplex: tuple[float, float]


def bound_inputs(share: int, costs: SampledCosts, room: int) -> BoundInputs:
    """Return convex and straight curves below the phases."""
    c_in, compute, c_out = (convex_minorant(costs.sizes, phase) for phase in costs.phases)
    sizes = {1, min(costs.largest, max(1, share // 8)), min(costs.largest, max(1, share // 64))}
    lines = dict.fromkeys(
        (tangent_below(c_in, size), tangent_below(compute, size), tangent_below(c_out, size))
        for size in sorted({*sizes, costs.largest})
    )
    cheap_in, cheap_compute, cheap_out = (float(phase.min()) for phase in costs.phases)
    return BoundInputs(
        (c_in, compute, c_out),
        list(lines),
        (cheap_in, cheap_compute, cheap_out),
        costs.largest,
        room,
        costs.duplex,
    )


def convex_costs(costs: SampledCosts) -> SampledCosts:
    """Return the convex minorants of `costs`, at their corners only: fast bounds of many shares.

    For a share below the largest chunk, they may be lower than the minorants of its own chunks.
    """
    curves = [convex_minorant(costs.sizes, phase) for phase in costs.phases]
    sizes = np.unique(np.concatenate([curve.sizes for curve in curves]))
    c_in, compute, c_out = (curve.at(sizes) for curve in curves)
    return SampledCosts(sizes, (c_in, compute, c_out), costs.duplex)


def phase_totals(share: int, counts: Floats, inputs: BoundInputs) -> tuple[Floats, Floats, Floats]:
    """Return minimum seconds of each phase in `counts` chunks: on convex curves, equal ones."""
    sizes = share / counts
    total_in, total_compute, total_out = (counts * curve.at(sizes) for curve in inputs.minorants)
    return total_in, total_compute, total_out


def engine_bound(
    counts: Floats,
    inputs: BoundInputs,
    overlap: Overlap,
    fills: int,
    totals: tuple[Floats, Floats, Floats],
) -> Floats:
    """Return the seconds of the busiest engine, with the minimum to fill and drain the pipeline.

    `fills`: minimum number of chunks that start with an empty pipeline.
    """
    total_in, total_compute, total_out = totals
    cheap_in, cheap_compute, cheap_out = inputs.cheapest
    if overlap is Overlap.NONE:
        return total_in + total_compute + total_out
    compute = total_compute + fills * (cheap_in + cheap_out)
    if overlap is Overlap.SINGLE:
        link_waits = np.maximum(2 * fills - counts, 0) * cheap_compute
        return np.maximum(compute, total_in + total_out + link_waits)
    inward = total_in + fills * (cheap_compute + cheap_out)
    outward = total_out + fills * (cheap_in + cheap_compute)
    busiest = np.maximum(np.maximum(inward, outward), compute)
    if min(inputs.duplex) == 1:
        return busiest
    pace_in, pace_out = inputs.duplex
    gained = max(pace_in + pace_out - 1, 0.0)
    shorter = np.minimum(total_in / pace_in, total_out / pace_out)
    return np.maximum(busiest, total_in + total_out - gained * shorter)


def least_over_counts(
    share: int,
    first: int,
    inputs: BoundInputs,
    overlap: Overlap,
    raised: Raise = unchanged,
    raised_convex: Raise = unchanged,
    fills: int = 1,
) -> float:
    """Return the minimum `engine_bound` over `first` chunks up to one chunk per unit.

    Beyond `MAX_COUNTS` numbers of chunks, only convex terms are used, whose minimum takes
    O(log share).

    Parameters
    ----------
    raised, raised_convex : callable
        Numbers of chunks and their bounds -> higher bounds; the latter convex by number.
    """

    def bounds_of(counts: Floats) -> Floats:
        totals = phase_totals(share, counts, inputs)
        return engine_bound(counts, inputs, overlap, fills, totals)

    least = np.inf
    for start in range(first, min(share + 1, first + MAX_COUNTS), BLOCK):
        counts = np.arange(start, min(start + BLOCK, share + 1), dtype=float)
        bounds = bounds_of(counts)
        if bounds[0] >= least:
            return float(least)  # engine bounds are convex and past their minimum
        least = min(least, float(raised(counts, bounds).min()))
    if share < first + MAX_COUNTS:
        return float(least)
    rest = first + MAX_COUNTS, share
    return min(float(least), _least_convex(lambda x: raised_convex(x, bounds_of(x)), *rest))


def _least_convex(bounds_of: Callable[[Floats], Floats], low: int, high: int) -> float:
    """Return the minimum of a convex function of whole numbers from `low` to `high`."""
    while high - low > BLOCK:
        counts = np.unique(np.geomspace(low, high, BLOCK).round())
        best = int(np.argmin(bounds_of(counts)))
        low = int(counts[max(best - 1, 0)])
        high = int(counts[min(best + 1, len(counts) - 1)])
    return float(bounds_of(np.arange(low, high + 1, dtype=float)).min())


def raised_by_residence(
    share: float, counts: Floats, inputs: BoundInputs, bounds: Floats
) -> Floats:
    """Return `bounds` raised to those of memory over time; convex by number of chunks."""
    for lines in inputs.lines:
        bounds = np.maximum(bounds, _residence(share, counts, lines, inputs.room))
    return bounds


def raised_by_paths(
    share: float, counts: Floats, inputs: BoundInputs, overlap: Overlap, bounds: Floats
) -> Floats:
    """Return `bounds` raised to those of memory over time and of critical paths."""
    bounds = raised_by_residence(share, counts, inputs, bounds)
    for lines in inputs.lines:
        if overlap is not Overlap.NONE:
            bounds = np.maximum(bounds, _paths(share, counts, lines, inputs.cheapest))
    return bounds


def _residence(share: float, counts: Floats, lines: tuple[Line, Line, Line], room: int) -> Floats:
    """Return bounds from residence: units times seconds in memory, over the memory's capacity."""
    gap = sum(line.gap for line in lines)
    slope = sum(line.slope for line in lines)
    bounds: Floats = (gap * share + slope * share * share / counts) / room
    return bounds


def _paths(
    share: float,
    counts: Floats,
    lines: tuple[Line, Line, Line],
    cheapest: tuple[float, float, float],
) -> Floats:
    """Return the longest of the averaged critical paths."""
    c_in, compute, c_out = lines
    no_phase = Line(0.0, 0.0)
    bounds: Floats = np.maximum.reduce(
        [
            _averaged_path(share, counts, c_in, compute, c_out),
            _averaged_path(share, counts, c_in, no_phase, compute) + cheapest[2],
            _averaged_path(share, counts, compute, no_phase, c_out) + cheapest[0],
        ]
    )
    return bounds


def _averaged_path(share: float, counts: Floats, first: Line, middle: Line, last: Line) -> Floats:
    """Return the average of paths that change from `first` to `last` at chunk l, weights r^l.

    These weights count every unit equally, regardless of its chunk.
    """
    up, down = first.slope + middle.slope, last.slope + middle.slope
    if math.isclose(up, down, rel_tol=RELATIVE_ROUNDING):
        rate = min(first.slope, last.slope) + min(up, down) / counts
        last_chunks = (counts + 1) / 2
    elif down == 0:
        rate, last_chunks = np.full_like(counts, first.slope), np.ones_like(counts)
    else:
        ratio = up / down
        with np.errstate(over="ignore"):
            power = np.expm1(counts * math.log(ratio)) if ratio > 0 else np.full_like(counts, -1.0)
        rate = first.slope + (first.slope - last.slope) / power
        last_chunks = ratio / (ratio - 1) - counts / power
    gaps = middle.gap + first.gap * (counts - last_chunks + 1) + last.gap * last_chunks
    bounds: Floats = rate * share + gaps
    return bounds
