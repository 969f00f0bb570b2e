"""The closed form of all our curves: pieces on which time and its inverse are fractions.

On piece j, from the point (x_j, t_j) on, with u = x - x_j and d = t - t_j::

    t(x) = t_j + c u / (s + m u)          x(t) = x_j + s d / (c - m d)

A piece that is linear in speed from (x_a, t_a) to (x_b, t_b) (Clarke 5.2; DFPA) has s = s_a, m the
slope of the speed, and c = x_b (t_b - t_a) / (t_b (x_b - x_a)): the textbook's x = a T / (1 - m T)
written about the knot, so that no digits cancel on a piece whose times hardly rise. Constant speed
is c = 1, m = 0. Both directions are exact at the knots.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Numbers = NDArray[Any]
"""Integers or floats."""
Number = TypeVar("Number", float, NDArray[Any])
"""A number, or an array of them."""
Piece = tuple[float, float, float, float, float]
"""(t_j seconds, x_j units, s units/s, c, m): one piece, as in the module's docstring."""
EQUAL = 1e-9
"""Relative difference up to which times count as equal, and by which level ones are made to rise,
so that there is an inverse: far below any measurement, far above rounding (2e-16)."""


class Segments:
    """A strictly increasing time function made of pieces, and its inverse. Immutable.

    `pieces`: the first starts at t = 0, x = 0. Two with the same x_j are a jump of time there.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.table: Floats = np.array(pieces, dtype=np.float64).T.copy()
        """(5, pieces): one row per parameter, for evaluating many curves at once."""
        self._lists: tuple[list[float], list[list[float]]] | None = None

    @property
    def fingerprint(self) -> bytes:
        return self.table.tobytes()

    def time(self, x: Number) -> Number:
        """Return the seconds for x units; 0 for x = 0. O(log pieces) per value."""
        if isinstance(x, np.ndarray):
            piece = np.searchsorted(self.table[1], np.maximum(x, 0), "right") - 1
            start, units, speed, scale, bend = self.table[:, piece]
            over = np.maximum(x, 0) - units
            seconds: Floats = np.where(x > 0, start + scale * over / (speed + bend * over), 0.0)
            return seconds
        if x <= 0:
            return 0.0
        if self._lists is None:  # to evaluate numbers; eight times the memory of the table
            self._lists = self.table[1].tolist(), self.table.T.tolist()
        starts, pieces = self._lists
        start, units, speed, scale, bend = pieces[bisect_right(starts, x) - 1]
        over = x - units
        return float(start + scale * over / (speed + bend * over))

    def speed(self, x: Number) -> Number:
        """Return units per second at a load of x; the first piece's initial speed for x = 0."""
        first = float(self.table[2, 0])
        if isinstance(x, np.ndarray):
            is_loaded = x > 0
            seconds = np.where(is_loaded, self.time(x), 1.0)
            return np.where(is_loaded, x / seconds, first)
        return float(x / self.time(x)) if x > 0 else first

    def derivative(self, x: Number) -> Number:
        """Return dt/dx at x, seconds per unit; to the right at a knot."""
        over = np.maximum(np.asarray(x, dtype=np.float64), 0.0)
        piece = np.searchsorted(self.table[1], over, "right") - 1
        _, units, speed, scale, bend = self.table[:, piece]
        slope: Floats = scale * speed / (speed + bend * (over - units)) ** 2
        return slope if isinstance(x, np.ndarray) else float(slope)


def constant_speed(speed: float) -> Segments:
    return Segments([(0.0, 0.0, speed, 1.0, 0.0)])


def straight_line(gap: float, slope: float) -> Segments:
    """Return gap + slope x for x > 0; both non-negative."""
    # A slope of 0 would fit infinitely many units into any time beyond the gap.
    steep = max(slope, gap * 1e-12, 1e-300)
    return Segments([(0.0, 0.0, 0.0, 1.0, 0.0), (gap, 0.0, 1 / steep, 1.0, 0.0)])


def through_knots(units: Floats, seconds: Floats) -> Segments:
    """Return the curve that is linear in speed between rising knots and constant outside them."""
    x, t = units.tolist(), seconds.tolist()
    speed = [a / b for a, b in zip(x, t, strict=True)]
    pieces: list[Piece] = [(0.0, 0.0, speed[0], 1.0, 0.0)]
    for j in range(len(x) - 1):
        width = x[j + 1] - x[j]
        scale = x[j + 1] * (t[j + 1] - t[j]) / (t[j + 1] * width)
        pieces.append((t[j], x[j], speed[j], scale, (speed[j + 1] - speed[j]) / width))
    pieces.append((t[-1], x[-1], speed[-1], 1.0, 0.0))
    return Segments(pieces)


def linear_times(units: Floats, seconds: Floats, last_slope: float) -> Segments:
    """Return times linear between knots, which may fall; constant speed below the first.

    `last_slope`: seconds per unit beyond the last knot.
    """
    level = EQUAL * float(seconds[-1]) / float(units[-1])
    slopes = np.append(np.diff(seconds) / np.diff(units), last_slope)
    slopes = np.where(slopes < 0, slopes, np.maximum(slopes, level))
    pieces: list[Piece] = [(0.0, 0.0, float(units[0] / seconds[0]), 1.0, 0.0)]
    for start, first, slope in zip(seconds.tolist(), units.tolist(), slopes.tolist(), strict=True):
        pieces.append((start, first, 1 / slope, 1.0, 0.0))
    return Segments(pieces)


class PackedSegments:
    """The pieces of many `curves` in one table, evaluated together: a copy, 40 bytes a piece."""

    def __init__(self, curves: Sequence[Segments]) -> None:
        tables = [curve.table for curve in curves]
        self._table: Floats = np.concatenate([np.empty((5, 0)), *tables], axis=1)
        counts = np.array([table.shape[1] for table in tables], dtype=np.intp)
        ends = np.cumsum(counts)
        self._first: Indices = ends - counts
        self._last: Indices = ends - 1
        longest = int(counts.max(initial=1))
        self._strides = [1 << bit for bit in reversed(range((longest - 1).bit_length()))]

    def inverse(self, seconds: float) -> tuple[Floats, Floats]:
        """Return (p,) float64 each: the largest real x with time(x) <= `seconds`; dx/dseconds."""
        if not len(self._first):
            return np.empty(0), np.empty(0)
        begun = np.add.reduceat(self._table[0] <= seconds, self._first, dtype=np.intp)
        start, units, speed, scale, bend = self._table.take(self._first + begun - 1, axis=1)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            late = seconds - start
            remaining = scale - bend * late
            return units + speed * late / remaining, speed * scale / (remaining * remaining)

    def time(self, curve: Indices, x: Numbers) -> Floats:
        """Return (k,) float64, seconds: `time(x[j])` of curve `curve[j]`."""
        piece, last = self._first[curve], self._last[curve]
        for stride in self._strides:
            further = np.minimum(piece + stride, last)
            piece = np.where(self._table[1].take(further) <= x, further, piece)
        start, units, speed, scale, bend = self._table.take(piece, axis=1)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            over = x - units
            seconds = start + scale * over / (speed + bend * over)
        return np.where(x > 0, seconds, 0.0)
