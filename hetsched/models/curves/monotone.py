"""A smooth curve whose times rise with size: a monotone cubic (Fritsch & Carlson 1980) of times.

Exactly one split makes all devices finish together if times are continuous and strictly increase
(Clarke 5.1). Akima's spline doesn't guarantee this; a monotone cubic does, without a shape rule.
"""

from __future__ import annotations

import math
from typing import overload

import numpy as np

from hetsched.models.curves.cubics import Cubics, SmoothCurve
from hetsched.models.curves.isotonic import rising
from hetsched.models.curves.segments import Floats, Numbers
from hetsched.models.validation import require_argument

MAX_NEWTON_STEPS = 100
"""Steps of Newton's method for the inverse, which bisects when a step leaves the bracket. A few
suffice."""


class Monotone(SmoothCurve[tuple[Cubics, Floats]]):
    """Times are a monotone cubic through the observed times, and (0, 0).

    Times that fall with size are pooled, as in `PiecewiseLinear`. Beyond twice the largest size
    speed is constant; between the two the curve approaches it.

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
        """Return the real x with time(x) = `seconds` (number or array); 0 if negative."""
        curve, times = self._fitted()
        target = np.maximum(
            np.asarray(require_argument("seconds", seconds, -math.inf), dtype=np.float64), 0.0
        )
        units = _solve(curve, times, np.atleast_1d(target)).reshape(target.shape)
        return units if isinstance(seconds, np.ndarray) else float(units)

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
    """Return derivatives at n >= 2 knots that keep a cubic as monotone as its knots.

    Inside, the weighted harmonic mean of both neighbouring slopes (Fritsch & Butland 1984, as in
    SciPy); at the ends the slope of the outermost piece. No derivative is more than three times a
    neighbouring slope, which suffices. `y` must strictly increase.
    """
    width = np.diff(x)
    m = np.diff(y) / width
    before, after = 2 * width[1:] + width[:-1], width[1:] + 2 * width[:-1]
    inner = (before + after) / (before / m[:-1] + after / m[1:])
    return np.concatenate((m[:1], inner, m[-1:]))


def _solve(curve: Cubics, times: Floats, target: Floats) -> Floats:
    """Return (n,) float64, units at which the curve, with knots at `times`, reaches `target`."""
    knots = curve.starts[1:]
    piece = np.clip(np.searchsorted(times, target, "right") - 1, 0, len(times) - 2)
    low, high = knots[piece].copy(), knots[piece + 1].copy()
    share = (target - times[piece]) / (times[piece + 1] - times[piece])
    x = low + share * (high - low)
    beyond = share > 1
    high[beyond] = np.inf
    for _ in range(MAX_NEWTON_STEPS):
        value, rate = curve.at(x)
        low, high = np.where(value <= target, x, low), np.where(value >= target, x, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = x - (value - target) / rate
        inside = (moved >= low) & (moved <= high)
        moved = np.where(inside, moved, np.where(np.isfinite(high), (low + high) / 2, x))
        converged = np.abs(moved - x) <= 1e-15 * np.abs(moved)
        x = moved
        if converged.all():
            break
    return x
