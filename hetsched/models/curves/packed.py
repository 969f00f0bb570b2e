"""Many curves in one table, evaluated together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hetsched.models.curves.segments import Floats, Numbers, Segments

Indices = NDArray[np.intp]


class PackedSegments:
    """The pieces of `curves`, one curve after the other.

    Parameters
    ----------
    curves : sequence of Segments
        With any number of pieces each. Their tables are copied: 40 bytes per piece.
    """

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
        """Return (p,) float64 each: the largest real x with time(x) <= `seconds`; dx/dseconds.

        `seconds` is finite and not negative. O(pieces).
        """
        if not len(self._first):
            return np.empty(0), np.empty(0)
        begun = np.add.reduceat(self._table[0] <= seconds, self._first, dtype=np.intp)
        start, units, speed, scale, bend = self._table.take(self._first + begun - 1, axis=1)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            late = seconds - start
            remaining = scale - bend * late
            return units + speed * late / remaining, speed * scale / (remaining * remaining)

    def time(self, curve: Indices, x: Numbers) -> Floats:
        """Return (k,) float64, seconds: `time(x[j])` of curve `curve[j]`; 0 for x[j] = 0.

        O(k log(pieces)).
        """
        piece, last = self._first[curve], self._last[curve]
        for stride in self._strides:
            further = np.minimum(piece + stride, last)
            piece = np.where(self._table[1].take(further) <= x, further, piece)
        start, units, speed, scale, bend = self._table.take(piece, axis=1)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            over = x - units
            seconds = start + scale * over / (speed + bend * over)
        return np.where(x > 0, seconds, 0.0)
