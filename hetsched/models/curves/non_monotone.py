"""Times that really fall with size, because of caches, alignment or library plans.

Isotonic regression would remove them. A dip is kept if repeats confirm it (Khaleghzadeh, Reddy
& Lastovetsky, TPDS 2018, study such functions and measure each point until it is precise).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from hetsched.models.curves.isotonic import rising
from hetsched.models.curves.segments import Floats, Numbers, Segments
from hetsched.models.evidence.confidence import Knot


def pool_except_dips(knots: Sequence[Knot]) -> Floats:
    """Return times that rise with size except where the evidence contradicts it.

    Falling times are pooled (isotonic regression, weighted with counts). Where a pooled time lies
    outside the confidence interval of one of its knots, the fall is real: the series is cut at the
    steepest fall of that pool, and each part is pooled by itself. Two knots whose intervals don't
    overlap are never pooled.

    Parameters
    ----------
    knots : sequence of Knot
        By units; at least one.

    Returns
    -------
    (n,) float64, seconds
        O(n) for each dip.
    """
    seconds = np.array([knot.seconds for knot in knots])
    counts = np.array([float(knot.count) for knot in knots])
    low = np.array([knot.low for knot in knots])
    high = np.array([knot.high for knot in knots])
    fitted = seconds.copy()
    ranges = [(0, len(knots))]
    while ranges:
        first, end = ranges.pop()
        part = slice(first, end)
        pooled = rising(seconds[part], counts[part])
        moved = np.abs(pooled - seconds[part]) > 1e-6 * seconds[part]
        contradicted = moved & ((pooled < low[part]) | (pooled > high[part]))
        if contradicted.any():
            cut = first + _steepest_fall(seconds[part], pooled, int(np.argmax(contradicted)))
            ranges += [(first, cut), (cut, end)]
        else:
            fitted[part] = pooled
    return fitted


def _steepest_fall(seconds: Floats, pooled: Floats, index: int) -> int:
    """Return the knot in the pool of knot `index` with the largest fall from its predecessor."""
    pool = np.flatnonzero(np.abs(pooled / pooled[index] - 1) < 1e-6)
    first, last = int(pool[0]), int(pool[-1])
    falls = seconds[first + 1 : last + 1] / seconds[first:last]
    return first + 1 + int(np.argmin(falls))


class SegmentsWithDips(Segments):
    """Pieces whose times may fall; O(pieces) for an inverse."""

    def __init__(self, curve: Segments) -> None:
        super().__init__([tuple(piece) for piece in curve.table.T.tolist()])

    @overload
    def inverse(self, seconds: float) -> float: ...
    @overload
    def inverse(self, seconds: Numbers) -> Floats: ...
    def inverse(self, seconds: float | Numbers) -> float | Floats:
        """Return the largest real x with time(x) <= seconds, or 0."""
        target = np.atleast_1d(np.maximum(np.asarray(seconds, dtype=np.float64), 0.0))[:, None]
        start, units, speed, scale, bend = self.table
        ends, after = np.append(start[1:], np.inf), np.append(units[1:], np.inf)
        late = np.maximum(target - start, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = units + speed * late / (scale - bend * late)
        # A piece that ends in time is included whole; any other rises, or starts too late.
        reached = np.where(target >= ends, after, np.where(target >= start, inside, 0.0))
        largest: Floats = reached.max(axis=1)
        if isinstance(seconds, np.ndarray):
            return largest.reshape(seconds.shape)
        return float(largest[0])
