"""What bounds the time of plans with so many chunks: engines, critical paths, memory over time.

The averaged paths are the dual of geometric growth from chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hetsched.plans.bounds.convex_minorant import Line, hull, lines
from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Costs, Floats

BLOCK = 512
"""Numbers of chunks that are looked at together."""


@dataclass(frozen=True)
class Device:
    """What the bound needs to know; phases in the order copy in, compute, copy out.

    `totals`: convex curves below the phases, element `size`. `straight`: lines below them, several
    threes. `least`: a phase of the cheapest chunk. `room`: units in memory together.
    """

    totals: tuple[Floats, Floats, Floats]
    straight: list[tuple[Line, Line, Line]]
    least: tuple[float, float, float]
    largest: int
    room: int
    duplex: tuple[float, float]


def device_of(share: int, costs: Costs, room: int) -> Device:
    c_in, compute, c_out = (hull(phase) for phase in costs.phases)
    sizes = {1, min(costs.largest, max(1, share // 8)), min(costs.largest, max(1, share // 64))}
    threes = dict.fromkeys(
        (lines(c_in, size), lines(compute, size), lines(c_out, size))
        for size in sorted({*sizes, costs.largest})
    )
    a, w, o = (float(phase[1:].min()) for phase in costs.phases)
    return Device(
        (c_in, compute, c_out), list(threes), (a, w, o), costs.largest, room, costs.duplex
    )


def totals_of(share: int, counts: Floats, device: Device) -> tuple[Floats, Floats, Floats]:
    """What each engine does at least in so many chunks: equal ones cost least on convex curves."""
    sizes = share / counts
    below = np.minimum(sizes.astype(int), device.largest - 1)
    part = sizes - below
    a, w, o = (
        counts * (curve[below] + part * (curve[below + 1] - curve[below]))
        for curve in device.totals
    )
    return a, w, o


def busiest(
    counts: Floats,
    device: Device,
    overlap: Overlap,
    fills: int,
    totals: tuple[Floats, Floats, Floats],
) -> Floats:
    """`fills`: how often the pipeline is empty at the start of a chunk, at least."""
    total_in, total_compute, total_out = totals
    least_in, least_compute, least_out = device.least
    if overlap is Overlap.NONE:
        return total_in + total_compute + total_out
    compute = total_compute + fills * (least_in + least_out)
    if overlap is Overlap.SINGLE:
        alone = np.maximum(2 * fills - counts, 0) * least_compute
        return np.maximum(compute, total_in + total_out + alone)
    inward = total_in + fills * (least_compute + least_out)
    outward = total_out + fills * (least_in + least_compute)
    both = np.maximum(np.maximum(inward, outward), compute)
    if min(device.duplex) == 1:
        return both
    pace_in, pace_out = device.duplex
    gained = max(pace_in + pace_out - 1, 0.0)
    shorter = np.minimum(total_in / pace_in, total_out / pace_out)
    return np.maximum(both, total_in + total_out - gained * shorter)


def least_of(
    share: int,
    first: int,
    device: Device,
    overlap: Overlap,
    raised: Callable[[Floats, Floats], Floats] = lambda counts, found: found,
    fills: int = 1,
) -> float:
    """The least from `first` chunks to as many as there are units: what engines need.

    `raised`: from numbers of chunks and that to more. `fills`: see `busiest`.
    """
    best = np.inf
    for start in range(first, share + 1, BLOCK):
        counts = np.arange(start, min(start + BLOCK, share + 1), dtype=float)
        found = busiest(counts, device, overlap, fills, totals_of(share, counts, device))
        if found[0] >= best:
            break  # it is convex, and was lower before
        best = min(best, float(raised(counts, found).min()))
    return float(best)


def smooth(
    share: float, counts: Floats, device: Device, overlap: Overlap, found: Floats
) -> Floats:
    """`found`, raised to what memory over time and critical paths allow."""
    for phases in device.straight:
        found = np.maximum(found, residence(share, counts, phases, device.room))
        if overlap is not Overlap.NONE:
            found = np.maximum(found, _paths(share, counts, phases, device.least))
    return found


def residence(share: float, counts: Floats, phases: tuple[Line, Line, Line], room: int) -> Floats:
    """Units times the seconds that they stay in memory, against memory times the makespan."""
    gap = sum(line.gap for line in phases)
    slope = sum(line.slope for line in phases)
    found: Floats = (gap * share + slope * share * share / counts) / room
    return found


def _paths(
    share: float,
    counts: Floats,
    phases: tuple[Line, Line, Line],
    least: tuple[float, float, float],
) -> Floats:
    c_in, compute, c_out = phases
    nothing = Line(0.0, 0.0)
    found: Floats = np.maximum.reduce(
        [
            _averaged(share, counts, c_in, compute, c_out),
            _averaged(share, counts, c_in, nothing, compute) + least[2],
            _averaged(share, counts, compute, nothing, c_out) + least[0],
        ]
    )
    return found


def _averaged(share: float, counts: Floats, first: Line, middle: Line, last: Line) -> Floats:
    """Paths that change from `first` to `last` at chunk l, weighted by r^l.

    With these weights every unit counts the same, whatever the chunk that it is in.
    """
    up, down = first.slope + middle.slope, last.slope + middle.slope
    if np.isclose(up, down, rtol=1e-9, atol=0.0):
        rate = min(first.slope, last.slope) + min(up, down) / counts
        behind = (counts + 1) / 2
    elif down == 0:
        rate, behind = np.full_like(counts, first.slope), np.ones_like(counts)
    else:
        ratio = up / down
        with np.errstate(over="ignore", divide="ignore"):
            power = np.expm1(counts * np.log(ratio)) if ratio > 0 else np.full_like(counts, -1.0)
        rate = first.slope + (first.slope - last.slope) / power
        behind = ratio / (ratio - 1) - counts / power
    found: Floats = (
        rate * share + middle.gap + first.gap * (counts - behind + 1) + last.gap * behind
    )
    return found
