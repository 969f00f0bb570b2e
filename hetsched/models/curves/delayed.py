"""A curve that starts late: what a core takes that gives some of its time to others."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hetsched.errors import UsageError
from hetsched.models.curves.curve import Curve, SpeedFunction
from hetsched.models.curves.segments import Floats, Segments

MOST_KEPT = 256


def delayed(curve: SpeedFunction, seconds: float) -> SpeedFunction:
    """`curve`, later by `seconds`. Somebody else's curve, whose form isn't known, stays."""
    return Delayed(curve, seconds) if seconds > 0 and isinstance(curve, Curve) else curve


class Delayed(Curve):
    """time(x) = curve.time(x) + seconds for x > 0. It doesn't learn.

    Parameters
    ----------
    curve : Curve
        Must not learn any more.
    seconds : float
        Not negative.
    """

    def __init__(self, curve: Curve, seconds: float) -> None:
        self._curve = curve
        self.seconds = seconds
        self.falls = curve.falls

    def observe(self, units: float, seconds: float) -> None:
        raise UsageError("a delayed curve doesn't learn; the curve that it is made of does")

    @property
    def points(self) -> Floats:
        found = self._curve.points.copy()
        found[:, 1] += self.seconds
        return found

    @property
    def repeats(self) -> int:
        return self._curve.repeats

    @property
    def segments(self) -> Segments:
        return _later(self._curve.segments, self.seconds)


@lru_cache(maxsize=MOST_KEPT)
def _later(segments: Segments, seconds: float) -> Segments:
    """Kept, so that what is made of a curve and the same delay is known again."""
    table = segments.table.copy()
    table[0] += seconds
    nothing = np.array([[0.0, 0.0, 0.0, 1.0, 0.0]])
    return Segments([tuple(piece) for piece in np.concatenate([nothing, table.T]).tolist()])
