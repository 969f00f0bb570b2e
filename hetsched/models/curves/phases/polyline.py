"""Times linear between given points, as in a table of costs; and the pieces of such curves."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hetsched.errors import UsageError
from hetsched.models.curves.curve import Curve
from hetsched.models.curves.isotonic import MIN_RELATIVE_RISE, rising
from hetsched.models.curves.non_monotone import SegmentsWithDips
from hetsched.models.curves.segments import Floats, Piece, Segments
from hetsched.models.validation import require_observation, require_pairs


class Polyline(Curve):
    """Times linear between points; constant speed below the first and beyond the last.

    It doesn't learn. Times may fall with size; `segments` is then the nearest curve that rises.

    Parameters
    ----------
    points : iterable of (units, seconds)

    Raises
    ------
    UsageError
        There are no points; units don't increase; a number is not positive and finite.
    """

    def __init__(self, points: Iterable[tuple[float, float]]) -> None:
        valid = [require_observation(*pair) for pair in require_pairs(points)]
        units, seconds = np.array(valid).reshape(-1, 2).T
        if not len(units) or not (np.diff(units) > 0).all():
            raise UsageError("points: there must be at least one, and their units must increase")
        self._points = np.array(valid)
        slope = float(seconds[-1] / units[-1])
        self._curve = linear_times(units, seconds, slope)
        self.may_fall = bool((np.diff(seconds) <= 0).any())
        if self.may_fall:
            self._segments = linear_times(units, rising(seconds, np.ones(len(units))), slope)
        else:
            self._segments = self._curve

    def observe(self, units: float, seconds: float) -> None:
        raise UsageError("a table of costs doesn't learn")

    @property
    def points(self) -> Floats:
        return self._points.copy()

    @property
    def repeats(self) -> int:
        return 0

    @property
    def segments(self) -> Segments:
        return self._segments

    @property
    def _evaluated(self) -> Segments:
        return self._curve

    def fingerprint(self) -> bytes:
        return self._curve.fingerprint


def linear_times(units: Floats, seconds: Floats, last_slope: float) -> Segments:
    """Return times linear between knots; constant speed below the first.

    Parameters
    ----------
    units, seconds : (n,) float64, n >= 1
        Units strictly increasing and positive. Level times rise by a billionth, so that there is
        an inverse.
    last_slope : float, seconds/unit
        Beyond the last knot.
    """
    level = MIN_RELATIVE_RISE * float(seconds[-1]) / float(units[-1])
    slopes = np.append(np.diff(seconds) / np.diff(units), last_slope)
    slopes = np.where(slopes < 0, slopes, np.maximum(slopes, level))
    pieces: list[Piece] = [(0.0, 0.0, float(units[0] / seconds[0]), 1.0, 0.0)]
    for start, first, slope in zip(seconds.tolist(), units.tolist(), slopes.tolist(), strict=True):
        pieces.append((start, first, 1 / slope, 1.0, 0.0))
    falls = bool((slopes < 0).any())
    return SegmentsWithDips(Segments(pieces)) if falls else Segments(pieces)
