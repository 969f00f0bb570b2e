"""A lower bound on the time of any plan for one device's share, by its model.

For each possible number of chunks: the busiest engine's time plus the least to fill and drain the
pipeline; critical paths, averaged so that chunk sizes cancel out; and of a ring the average over
its slots. The bound is the least over numbers of chunks and of slots. Below
curves that aren't straight, convex and straight ones are used. (Ours; Ilic & Sousa give none.)
"""

from __future__ import annotations

import copy
import itertools
import math
from typing import NamedTuple

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.models.curves import EQUAL
from hetsched.plans.costs import (
    MAX_SLOTS,
    Floats,
    largest_sub_distribution,
    phase_seconds,
    sample_sizes,
)
from hetsched.plans.device_plan import Overlap, validate_request

BLOCK, DOUBLINGS = 64, 8
"""Numbers of chunks that are evaluated together, then twice as many, and so on; beyond, they are
bounded by the cheapest units."""
ROUNDING = 1e-12
"""Relative error of a bound by rounding; a plan may take exactly as long as its bound."""


class _Line(NamedTuple):
    """`gap` + `slope` x for x units, both non-negative; seconds and seconds/unit."""

    gap: float
    slope: float


NOTHING = _Line(0.0, 0.0)


class _Minorant(NamedTuple):
    """The largest convex curve nowhere above some points: (n,) sizes, units, and seconds."""

    sizes: Floats
    seconds: Floats

    def at(self, sizes: Floats) -> Floats:
        return np.interp(sizes, self.sizes, self.seconds)


def lower_bound(share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap) -> float:
    """Return the minimum seconds of any plan for `share` units.

    Parameters
    ----------
    share : int, units
    model : DeviceModel
    memory : MemoryDemand
    overlap : Overlap

    Raises
    ------
    DataError
        Not even one unit fits.
    UsageError
        The share is negative or not an integer; a parameter has the wrong type.
    """
    share = validate_request(share, model, memory, overlap)
    return ShareBounds(share, model, memory, overlap).seconds(share) if share else 0.0


class ShareBounds:
    """Lower bounds for shares of a load on one device with a link.

    `correction`: measured times of its shares over those by its phases.
    """

    def __init__(
        self,
        load: int,
        model: DeviceModel,
        memory: MemoryDemand,
        overlap: Overlap,
        correction: float = 1.0,
    ) -> None:
        self._factor = correction * (1 - ROUNDING)
        self._largest = memory.max_chunk(load)
        self._room = largest_sub_distribution(load, memory)
        self._overlap = overlap
        self._duplex = model.duplex
        sizes = sample_sizes(self._largest)
        phases = phase_seconds(model, sizes)
        self._minorants = [_minorant(sizes, phase) for phase in phases]
        self._cheapest = [float(phase.min()) for phase in phases]

    def seconds(self, share: int) -> float:
        if share == 0:
            return 0.0
        largest = min(self._largest, share)
        bounds = [self._least(share, Overlap.NONE, -(-share // largest))]
        if self._overlap is not Overlap.NONE and share > 1:
            # The last one stands for larger ones; with one engine, more than two change nothing.
            first = MAX_SLOTS + 1 if share <= self._room else 2
            counts = range(first, min(MAX_SLOTS + 1, max(first, self._room)) + 1)
            if self._overlap is Overlap.SINGLE:
                counts = range(2, min(2, self._room) + 1)
            bounds += [self._of_ring(share, slots) for slots in counts]
            if share > self._room:
                bounds.append(self._of_installments(share, largest))
        return self._factor * min(bounds)

    def _of_ring(self, share: int, slots: int) -> float:
        first = 2
        if share > self._room:  # the fewest chunks, with `slots` of a unit or more in memory
            turns, rest = divmod(share, self._room)
            first = turns * slots + (max(slots - (self._room - rest), 1) if rest else 0)
        return self._least(share, self._overlap, first, slots if slots <= MAX_SLOTS else 0)

    def _of_installments(self, share: int, largest: int) -> float:
        """Return the least of sub-distributions, which fill and drain the pipeline each time.

        One of a single chunk is serial; others cost less per unit the larger they are.
        """
        parts = -(-share // self._room)
        first = max(parts, -(-share // largest))
        least = self._least(share, self._overlap, first, parts=parts)
        rooted = copy.copy(self)
        rooted._minorants = [_rooted(minorant) for minorant in self._minorants]
        unit = sum(float(m.at(np.array([largest]))[0]) for m in rooted._minorants) / largest
        if self._room > 1:
            chunks = max(2, -(-self._room // largest))
            unit = min(unit, rooted._least(self._room, self._overlap, chunks) / self._room)
        return max(least, share * unit)

    def _least(
        self, share: int, overlap: Overlap, first: int, slots: int = 0, parts: int = 1
    ) -> float:
        """Return the least bound over numbers of chunks from `first` on.

        `slots`: of a ring; 0: not known. `parts`: times that the pipeline is filled and drained.
        """
        least = math.inf
        # Lines below the minorants, each triple tight at a different size
        largest = min(self._largest, share)
        tight = sorted({1, largest, *(min(largest, max(1, share // n)) for n in (8, 64))})
        lines = (tuple(_tangent(minorant, size) for minorant in self._minorants) for size in tight)
        tangents = list(dict.fromkeys(lines))
        ends = [first, *(first + (BLOCK << step) for step in range(DOUBLINGS))]
        for start, end in itertools.pairwise(ends):
            counts = np.arange(start, min(end, share + 1), dtype=float)
            totals = [counts * minorant.at(share / counts) for minorant in self._minorants]
            bounds = self._engines(counts, totals, overlap, parts)
            if not len(counts) or bounds[0] >= least:
                return least  # engine bounds are convex and past their minimum
            if overlap is not Overlap.NONE:
                bounds = self._raised(share, counts, totals, slots, tangents, bounds)
            least = min(least, float(bounds.min()))
        more = np.array([ends[-1]], dtype=float)
        totals = []
        for minorant in self._minorants:
            sizes = np.append(
                minorant.sizes[minorant.sizes <= share / more[0]], max(share / more[0], 1.0)
            )
            totals.append(share * (minorant.at(sizes) / sizes).min(keepdims=True))
        return min(least, float(self._engines(more, totals, overlap, parts)[0]))

    def _raised(
        self,
        share: int,
        counts: Floats,
        totals: list[Floats],
        slots: int,
        tangents: list[tuple[_Line, ...]],
        bounds: Floats,
    ) -> Floats:
        """Return `bounds` raised to those of critical paths and slots."""
        for lines in tangents:
            bounds = np.maximum(bounds, self._paths(share, counts, lines))
            if slots and share > self._room:
                bounds = np.maximum(bounds, self._refills(share, counts, slots, lines))
        if not slots:
            return bounds
        # The average over slots of all phases of a slot's chunks, after the first copies in of
        # other slots, and before their last copies out.
        frame = (np.minimum(counts, slots) - 1) / 2 * (self._cheapest[0] + self._cheapest[2])
        raised: Floats = np.maximum(bounds, np.add.reduce(totals) / slots + frame)
        return raised

    # ---- terms, each (counts,) float64, seconds

    def _engines(
        self, counts: Floats, totals: list[Floats], overlap: Overlap, parts: int
    ) -> Floats:
        """Return the busiest engine's time, with the least to fill and drain the pipeline."""
        total_in, total_compute, total_out = totals
        cheap_in, cheap_compute, cheap_out = self._cheapest
        if overlap is Overlap.NONE:
            return total_in + total_compute + total_out
        compute = total_compute + parts * (cheap_in + cheap_out)
        if overlap is Overlap.SINGLE:
            waits = np.maximum(2 * parts - counts, 0) * cheap_compute
            return np.maximum(compute, total_in + total_out + waits)
        inward = total_in + parts * (cheap_compute + cheap_out)
        outward = total_out + parts * (cheap_in + cheap_compute)
        pace_in, pace_out = self._duplex
        gained = max(pace_in + pace_out - 1, 0.0)
        shorter = np.minimum(total_in / pace_in, total_out / pace_out)
        link = total_in + total_out - gained * shorter
        bounds: Floats = np.maximum.reduce([inward, outward, compute, link])
        return bounds

    def _paths(self, share: int, counts: Floats, lines: tuple[_Line, ...]) -> Floats:
        c_in, compute, c_out = lines
        cheap_in, _, cheap_out = self._cheapest
        paths = [
            _averaged_path(share, counts, c_in, compute, c_out),
            _averaged_path(share, counts, c_in, NOTHING, compute) + cheap_out,
            _averaged_path(share, counts, compute, NOTHING, c_out) + cheap_in,
        ]
        if self._overlap is Overlap.SINGLE:
            # The engine copies O_l, I_{l+2}, O_{l+1}, ...; at the other end the mirror image.
            paths += [
                _averaged_path(share, counts, compute, NOTHING, c_out, c_in) + cheap_in,
                _averaged_path(share, counts, compute, NOTHING, c_in, c_out) + cheap_out,
            ]
        bounds: Floats = np.maximum.reduce(paths)
        return bounds

    def _refills(self, share: int, counts: Floats, slots: int, lines: tuple[_Line, ...]) -> Floats:
        """Return bounds for q `slots` + r chunks, r > 0, from the units beyond q full turns.

        Any r chunks outside of q turns, of which there are q + 1, hold all that these can't.
        """
        gap, slope = sum(line.gap for line in lines), sum(line.slope for line in lines)
        turns, extra_chunks = np.divmod(counts, slots)
        extra_units = np.maximum(share - turns * self._room, 0)
        turn = gap + slope * extra_units / np.maximum(extra_chunks, 1)
        return np.where((extra_chunks > 0) & (extra_units > 0), (turns + 1) * turn, 0.0)


def _averaged_path(
    share: int, counts: Floats, first: _Line, middle: _Line, last: _Line, lagged: _Line = NOTHING
) -> Floats:
    """Return the average of paths that turn at chunk l, with weights r^l.

    A path is `first` of the chunks up to l, `middle` of l, `last` from l on and `lagged` from
    l + 2 on. Any r gives a bound. This one counts units equally, regardless of their chunk, except
    near the ends: the dual of geometric growth.
    """
    before, after = first.slope + middle.slope, last.slope + middle.slope
    ratio = (before + math.sqrt(max(before**2 - 4 * after * lagged.slope, 0.0))) / 2
    log_ratio = math.log(max(ratio, 1e-300) / max(after, 1e-300))  # 0: all weight at one end
    step = min(max(abs(log_ratio), 1e-6), 1e3)
    with np.errstate(over="ignore"):
        distance = 1 / np.expm1(step) - counts / np.expm1(counts * step)
    heaviest = np.expm1(-step) / np.expm1(-counts * step)
    distances = 0 * counts, 1 + 0 * counts, np.maximum(counts - 2, 0), counts - 1
    weights = [heaviest * np.exp(-step * each) for each in distances]
    at_end, before_end, second, at_start = weights
    turn = counts - distance
    if log_ratio < 0:
        at_start, second, before_end, at_end = weights
        turn = 1 + distance
    rates = (
        first.slope + after * at_start,
        first.slope * (1 - at_start) + last.slope * at_start + after * second,
        before * at_end + last.slope + lagged.slope * (1 - at_end - before_end),
    )
    gaps = first.gap * turn + middle.gap + last.gap * (counts + 1 - turn)
    bounds: Floats = np.minimum.reduce(rates) * share + gaps + lagged.gap * (counts - 1 - turn)
    return bounds


def _minorant(sizes: Floats, seconds: Floats) -> _Minorant:
    """Return the lower convex hull of all sizes, of which some are sampled."""
    ends = _Minorant(sizes[[0, -1]], seconds[[0, -1]] * (1 - EQUAL))
    if len(sizes) > 1 and float(np.abs(seconds - ends.at(sizes)).max()) <= 2 * EQUAL * float(
        seconds.max()
    ):
        return ends  # a straight line, as most costs are
    # Sizes just below the next sample take at least as long as the sample before them.
    gaps = np.flatnonzero(np.diff(sizes) > 1)
    sizes = np.insert(sizes, gaps + 1, sizes[gaps + 1] - 1)
    seconds = np.insert(seconds, gaps + 1, seconds[gaps])
    # Andrew's monotone chain
    corners: list[tuple[float, float]] = []
    for x, t in zip(sizes.tolist(), seconds.tolist(), strict=True):
        while len(corners) > 1:
            (x0, t0), (x1, t1) = corners[-2:]
            if (t1 - t0) * (x - x0) < (t - t0) * (x1 - x0):
                break
            corners.pop()
        corners.append((x, t))
    units, times = np.array(corners).T
    return _Minorant(units, times)


def _rooted(minorant: _Minorant) -> _Minorant:
    """Return the largest convex curve below `minorant` whose value per unit never grows."""
    sizes, seconds = minorant
    best = int(np.argmin(seconds / sizes))
    if best + 1 == len(sizes):
        return minorant
    end = seconds[best] / sizes[best] * sizes[-1]
    return _Minorant(np.append(sizes[: best + 1], sizes[-1]), np.append(seconds[: best + 1], end))


def _tangent(minorant: _Minorant, size: int) -> _Line:
    """Return a line nowhere above `minorant` that touches it at `size`, or as near as possible.

    Through the origin or level, where gap or slope would be negative.
    """
    sizes, seconds = minorant
    if len(sizes) == 1:
        return _Line(float(seconds[0]), 0.0)
    right = min(max(int(np.searchsorted(sizes, size, "right")), 1), len(sizes) - 1)
    slope = float((seconds[right] - seconds[right - 1]) / (sizes[right] - sizes[right - 1]))
    if slope < 0:
        return _Line(float(seconds.min()), 0.0)
    gap = float((seconds - slope * sizes).min())  # rounding must not lift an end above the curve
    return _Line(gap, slope) if gap >= 0 else _Line(0.0, float((seconds / sizes).min()))
