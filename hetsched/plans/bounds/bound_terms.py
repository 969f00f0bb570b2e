"""The terms of the bounds, by number of chunks: engines, critical paths, memory over time.

The averaged paths are the dual of geometric growth from chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hetsched.plans.bounds.convex_minorant import Line, convex_minorant, tangent_below
from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Floats, PhaseCosts

BLOCK = 512
"""Numbers of chunks that are evaluated together."""
RELATIVE_ROUNDING = 1e-9
"""Slopes that differ by less count as equal."""


@dataclass(frozen=True)
class BoundInputs:
    """A device's costs as used by bounds; phases in the order copy in, compute, copy out.

    Attributes
    ----------
    minorants : three (largest + 1,) float64, seconds
        Convex curves below the phases; element `size`.
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

    minorants: tuple[Floats, Floats, Floats]
    lines: list[tuple[Line, Line, Line]]
    cheapest: tuple[float, float, float]
    largest: int
    room: int
    duplex: tuple[float, float]


def bound_inputs(share: int, costs: PhaseCosts, room: int) -> BoundInputs:
    """Return convex and straight curves below the phases."""
    c_in, compute, c_out = (convex_minorant(phase) for phase in costs.phases)
    sizes = {1, min(costs.largest, max(1, share // 8)), min(costs.largest, max(1, share // 64))}
    lines = dict.fromkeys(
        (tangent_below(c_in, size), tangent_below(compute, size), tangent_below(c_out, size))
        for size in sorted({*sizes, costs.largest})
    )
    cheap_in, cheap_compute, cheap_out = (float(phase[1:].min()) for phase in costs.phases)
    return BoundInputs(
        (c_in, compute, c_out),
        list(lines),
        (cheap_in, cheap_compute, cheap_out),
        costs.largest,
        room,
        costs.duplex,
    )


def phase_totals(share: int, counts: Floats, inputs: BoundInputs) -> tuple[Floats, Floats, Floats]:
    """Return minimum seconds of each phase in `counts` chunks: on convex curves, equal ones."""
    sizes = share / counts
    below = np.minimum(sizes.astype(int), inputs.largest - 1)
    fraction = sizes - below
    total_in, total_compute, total_out = (
        counts * (curve[below] + fraction * (curve[below + 1] - curve[below]))
        for curve in inputs.minorants
    )
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
    raised: Callable[[Floats, Floats], Floats] = lambda counts, bounds: bounds,
    fills: int = 1,
) -> float:
    """Return the minimum `engine_bound` over `first` chunks up to one chunk per unit.

    `raised`: maps numbers of chunks and their bounds to higher bounds.
    """
    least = np.inf
    for start in range(first, share + 1, BLOCK):
        counts = np.arange(start, min(start + BLOCK, share + 1), dtype=float)
        totals = phase_totals(share, counts, inputs)
        bounds = engine_bound(counts, inputs, overlap, fills, totals)
        if bounds[0] >= least:
            break  # engine bounds are convex and past their minimum
        least = min(least, float(raised(counts, bounds).min()))
    return float(least)


def raised_by_paths(
    share: float, counts: Floats, inputs: BoundInputs, overlap: Overlap, bounds: Floats
) -> Floats:
    """Return `bounds` raised to those of memory over time and of critical paths."""
    for lines in inputs.lines:
        bounds = np.maximum(bounds, _residence(share, counts, lines, inputs.room))
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
    if np.isclose(up, down, rtol=RELATIVE_ROUNDING, atol=0.0):
        rate = min(first.slope, last.slope) + min(up, down) / counts
        last_chunks = (counts + 1) / 2
    elif down == 0:
        rate, last_chunks = np.full_like(counts, first.slope), np.ones_like(counts)
    else:
        ratio = up / down
        with np.errstate(over="ignore", divide="ignore"):
            power = np.expm1(counts * np.log(ratio)) if ratio > 0 else np.full_like(counts, -1.0)
        rate = first.slope + (first.slope - last.slope) / power
        last_chunks = ratio / (ratio - 1) - counts / power
    gaps = middle.gap + first.gap * (counts - last_chunks + 1) + last.gap * last_chunks
    bounds: Floats = rate * share + gaps
    return bounds
