"""A fixed cost and a cost per unit: the phases of a chunk on a device behind a link.

Constant speed below the smallest knot would hide the cost of starting a copy or a kernel, and a
planner would cut the load into chunks of one unit: Potts & Baker (1989) and later work on lot
streaming have such a setup time for each sublot.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hetsched.models.curves.curve import Curve
from hetsched.models.curves.fitted_curve import FittedCurve
from hetsched.models.curves.segments import Floats, Segments
from hetsched.models.validation import require_non_negative

MAX_FITTED_SIZES = 32
"""Sizes in one fit, evenly chosen: the fit tries every pair."""


class Affine(FittedCurve[tuple[float, float, Segments]], Curve):
    """time(x) = gap + slope x for x > 0, both non-negative.

    The line has the least sum of relative errors |line - t| / max(line, t) over the median times
    of all sizes, weighted with their numbers of observations. Each error is at most 1, so an
    outlier in either direction doesn't move the line, and small sizes, which determine the gap,
    count as much as large ones.

    Parameters
    ----------
    gap, slope : float, seconds and seconds/unit, optional
        Used until the first observation.
    observations : iterable of (units, seconds), optional

    Raises
    ------
    UsageError
        Gap or slope is negative or not finite; an observation is not positive and finite.
    """

    def __init__(
        self,
        gap: float | None = None,
        slope: float | None = None,
        observations: Iterable[tuple[float, float]] = (),
    ) -> None:
        super().__init__(observations)
        line = (
            require_non_negative("gap", 0.0 if gap is None else gap, " s"),
            require_non_negative("slope", 0.0 if slope is None else slope, " s/unit"),
        )
        if (gap, slope) != (None, None) and not len(self._windows):
            self._fit = *line, line_segments(*line)

    @property
    def gap(self) -> float:
        """Fixed cost of an operation, in seconds."""
        return self._fitted()[0]

    @property
    def slope(self) -> float:
        """Seconds per unit."""
        return self._fitted()[1]

    @property
    def segments(self) -> Segments:
        return self._fitted()[2]

    def _refit(self) -> tuple[float, float, Segments]:
        line = fitted_line(*self._windows.medians())
        return *line, line_segments(*line)


def line_segments(gap: float, slope: float) -> Segments:
    """Return the closed form of the line."""
    # A slope of 0 would fit infinitely many units into any time beyond the gap.
    steep = max(slope, gap * 1e-12, 1e-300)
    return Segments([(0.0, 0.0, 0.0, 1.0, 0.0), (gap, 0.0, 1 / steep, 1.0, 0.0)])


def fitted_line(x: Floats, t: Floats, weights: Floats) -> tuple[float, float]:
    """Return the gap and slope of least relative error.

    Candidates are the lines through two points, through one point and the origin, and horizontal
    through one point: the corners of the linear program of least absolute errors. O(n^3) for n
    sizes, vectorised.
    """
    if len(x) > MAX_FITTED_SIZES:
        chosen = np.linspace(0, len(x) - 1, MAX_FITTED_SIZES).round().astype(int)
        x, t, weights = x[chosen], t[chosen], weights[chosen]
    i, j = np.triu_indices(len(x), 1)
    slope = (t[j] - t[i]) / (x[j] - x[i])
    gap = t[i] - slope * x[i]
    allowed = (slope >= 0) & (gap >= 0)
    level = np.zeros_like(t)
    gaps = np.concatenate((gap[allowed], level, t))
    slopes = np.concatenate((slope[allowed], t / x, level))
    lines = gaps[:, None] + slopes[:, None] * x
    error = (np.abs(lines - t) / np.maximum(lines, t)) @ weights
    best = int(np.argmin(error))
    return float(gaps[best]), float(slopes[best])
