"""A fixed cost and a cost a unit: the phases of a chunk on a device behind a link.

Constant speed below the smallest knot would hide what it costs to start a copy or a kernel, and a
planner would cut the load into chunks of one unit: Potts & Baker (1989) and later work on lot
streaming count such a setup time for each sublot.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hetsched.models.curves.curve import Curve
from hetsched.models.curves.learning_curve import Learned
from hetsched.models.curves.segments import Floats, Segments
from hetsched.models.validation import not_negative

MOST_SIZES = 32
"""Sizes that a fit looks at, evenly chosen: it tries every pair of them."""


class Affine(Learned[tuple[float, float, Segments]], Curve):
    """time(x) = gap + slope x for x > 0, both non-negative.

    The line has the least sum of relative errors |line - t| / max(line, t) over the median times
    of all sizes, each weighted with its number of observations. No size can err by more than 1, so
    that one far off the others' line doesn't bend it, too fast or too slow; and small sizes, which
    tell the gap, count as much as large ones.

    Parameters
    ----------
    gap, slope : float, seconds and seconds/unit, optional
        To start with, until something is observed.
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
            not_negative("gap", 0.0 if gap is None else gap, " s"),
            not_negative("slope", 0.0 if slope is None else slope, " s/unit"),
        )
        if (gap, slope) != (None, None) and not len(self._windows):
            self._fit = *line, _pieces(*line)

    @property
    def gap(self) -> float:
        """Seconds that an operation costs before its first unit."""
        return self._fitted()[0]

    @property
    def slope(self) -> float:
        """Seconds a unit."""
        return self._fitted()[1]

    @property
    def segments(self) -> Segments:
        return self._fitted()[2]

    def _refit(self) -> tuple[float, float, Segments]:
        line = _line(*self._windows.medians())
        return *line, _pieces(*line)


def _pieces(gap: float, slope: float) -> Segments:
    # A slope of nothing would put infinitely many units into any time beyond the gap.
    steep = max(slope, gap * 1e-12, 1e-300)
    return Segments([(0.0, 0.0, 0.0, 1.0, 0.0), (gap, 0.0, 1 / steep, 1.0, 0.0)])


def _line(x: Floats, t: Floats, weights: Floats) -> tuple[float, float]:
    """Gap and slope of least relative error among lines that could be the best.

    Those are the lines through two points, or through one and the origin, or level through one:
    the corners of the linear program of least absolute errors. O(n^3) for n sizes, vectorised.
    """
    if len(x) > MOST_SIZES:
        some = np.linspace(0, len(x) - 1, MOST_SIZES).round().astype(int)
        x, t, weights = x[some], t[some], weights[some]
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
