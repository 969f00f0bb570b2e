"""A smooth curve whose times rise with size: a monotone cubic (Fritsch & Carlson 1980) of times.

One and only one split makes all devices finish together if times are continuous and strictly
increase (Clarke 5.1), which Akima's spline doesn't grant and no rule for the shape is needed here.
"""

from __future__ import annotations

import math
from typing import overload

import numpy as np

from hetsched.models.curves.cubics import Cubics, SmoothCurve
from hetsched.models.curves.isotonic import rising
from hetsched.models.curves.segments import Floats, Numbers
from hetsched.models.validation import asked

MOST_STEPS = 100
"""Newton's method for the inverse halves its bracket whenever it leaves it; a few steps do."""


class Monotone(SmoothCurve[tuple[Cubics, Floats]]):
    """Times are a monotone cubic through the observed times, and (0, 0).

    Times that fall with size are pooled, as in `PiecewiseLinear`. Beyond twice the largest size
    speed is constant; between the two the curve passes into that.

    Parameters
    ----------
    observations : iterable of (units, seconds), optional

    Raises
    ------
    UsageError
        An observation is not positive and finite.
    """

    @property
    def points(self) -> Floats:
        """(n, 2) float64, units and seconds: the knots of the curve, by units."""
        if not len(self._windows):
            return super().points
        return np.column_stack(self._knots())

    @overload
    def inverse(self, seconds: float, /) -> float: ...
    @overload
    def inverse(self, seconds: Numbers, /) -> Floats: ...
    def inverse(self, seconds: float | Numbers, /) -> float | Floats:
        """The real x with time(x) = `seconds` (number or array), to rounding; 0 if negative."""
        curve, times = self._fitted()
        wanted = np.maximum(
            np.asarray(asked("seconds", seconds, -math.inf), dtype=np.float64), 0.0
        )
        found = _solved(curve, times, np.atleast_1d(wanted)).reshape(wanted.shape)
        return found if isinstance(seconds, np.ndarray) else float(found)

    def _at(self, x: Floats) -> tuple[Floats, Floats]:
        return self._fitted()[0].at(x)

    def _knots(self) -> tuple[Floats, Floats]:
        units, seconds, counts = self._windows.medians()
        return units, rising(seconds, counts)

    def _refit(self) -> tuple[Cubics, Floats]:
        units, seconds = self._knots()
        x = np.concatenate(([0.0], units, 2 * units[-1:]))
        t = np.concatenate(([0.0], seconds, 2 * seconds[-1:]))
        return Cubics(x, t, slopes(x, t)), t


def slopes(x: Floats, y: Floats) -> Floats:
    """Derivatives at n >= 2 knots that keep a cubic as monotone as its knots are.

    Inside, the weighted harmonic mean of both neighbouring slopes (Fritsch & Butland 1984, as in
    SciPy); at the ends the slope of the outermost piece. No derivative is more than three times a
    neighbouring slope, which suffices. `y` must strictly increase.
    """
    width = np.diff(x)
    m = np.diff(y) / width
    left, right = 2 * width[1:] + width[:-1], width[1:] + 2 * width[:-1]
    inner = (left + right) / (left / m[:-1] + right / m[1:])
    return np.concatenate((m[:1], inner, m[-1:]))


def _solved(curve: Cubics, times: Floats, wanted: Floats) -> Floats:
    """(n,) float64 where the curve, that is at `times` in its knots, is at `wanted`."""
    knots = curve.starts[1:]
    piece = np.clip(np.searchsorted(times, wanted, "right") - 1, 0, len(times) - 2)
    low, high = knots[piece].copy(), knots[piece + 1].copy()
    share = (wanted - times[piece]) / (times[piece + 1] - times[piece])
    x = low + share * (high - low)
    beyond = share > 1
    high[beyond] = np.inf
    for _ in range(MOST_STEPS):
        now, rate = curve.at(x)
        low, high = np.where(now <= wanted, x, low), np.where(now >= wanted, x, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = x - (now - wanted) / rate
        inside = (moved >= low) & (moved <= high)
        moved = np.where(inside, moved, np.where(np.isfinite(high), (low + high) / 2, x))
        done = np.abs(moved - x) <= 1e-15 * np.abs(moved)
        x = moved
        if done.all():
            break
    return x
