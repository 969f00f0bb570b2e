"""The phases of a chunk: a line where it fits, else a line per piece.

Kernels run in waves, batches are cut into powers of two, copies change their way at a size: such
times jump, and a line through them makes plans up to twice as long as necessary. They may also
fall with size where repeats confirm it (a batch of 128 FFTs is one call, one of 127 seven). Linear
in time rather than in speed (`PiecewiseLinear`), because on each side of a jump a phase is a fixed
cost and a cost per unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from hetsched.models.curves import Floats, Segments, linear_times
from hetsched.models.fits import fitted_line, pool_except_dips, rising
from hetsched.models.functions import Fit, FittedCurve, Polyline, line_fit
from hetsched.models.windows import CERTAIN_ERRORS, MEDIAN_VARIANCE, MIN_NOISE, Windows

MAX_MISFIT = 0.05
"""Relative distance of a size from the line beyond which the line doesn't fit, unless it is noise;
the same from which a step may lie between two sizes."""
MAX_LAST_RATIO = 1.5
"""The slope beyond the largest size is taken from a size smaller by this factor, since noise
determines the slope between neighbours."""
MIN_CALL_FRACTION = 0.01
"""A call that costs less than this part of a chunk doesn't matter: dearer ones, as of a matrix
product that packs its right side in each, make chunks longer."""


class PhaseCurve(FittedCurve):
    """time(x) = gap + slope x where that fits all sizes; else piecewise linear."""

    @property
    def gap(self) -> float | None:
        """Fixed cost of an operation, in seconds; None: no line fits."""
        line = self._fitted().line
        return None if line is None else line[0]

    @property
    def slope(self) -> float | None:
        """Seconds per unit; None: no line fits."""
        line = self._fitted().line
        return None if line is None else line[1]

    def evidence(self) -> Windows:
        return self._windows

    def call_seconds(self) -> float:
        """Return the gap of the line through most sizes; 0 if it may be noise or doesn't matter.

        It needn't fit all: a product of one row may be computed in another way.
        """
        fit: Fit = self._fitted()
        evidence, (gap, slope) = self._windows.evidence, fit.trend
        smallest, largest = float(evidence.units[0]), float(evidence.units[-1])
        runs = self._windows.runs(largest / 2)
        if not runs:
            return 0.0
        # The gap is as uncertain as the times of the smallest chunks.
        noise = max(evidence.noise, MIN_NOISE) * math.sqrt(MEDIAN_VARIANCE / runs)
        least = max(
            CERTAIN_ERRORS * max(noise, fit.misfit) * (gap + slope * smallest),
            MIN_CALL_FRACTION * (gap + slope * largest),
        )
        return gap if gap > least else 0.0

    def halfway(self) -> Iterator[tuple[int, float, float]]:
        """Yield sizes halfway between two that a step may separate, with least and most seconds.

        The least: the step is right before the larger size, and times go on as below the smaller;
        the most: right after the smaller one.
        """
        fit: Fit = self._fitted()
        points = [(0.0, 0.0), *fit.points.tolist()] if fit.line is None else []
        for (x, t), (low, fast), (high, slow) in zip(points, points[1:], points[2:], strict=False):
            size, paces = (int(low) + int(high)) // 2, (fast / low, slow / high)
            if size > low and slow > fast and max(paces) > (1 + MAX_MISFIT) * min(paces):
                least = fast + max(0.0, fast - t) / (low - x) * (size - low)
                yield size, min(least, fit.curve.time(size)), slow

    def through(self, seconds: Mapping[int, float]) -> Polyline:
        return Polyline(sorted({**dict(self._fitted().points.tolist()), **seconds}.items()))

    def _refit(self) -> Fit:
        _, units, medians, seconds, counts, noise = self._windows.evidence
        trend = fitted_line(units, seconds, counts)
        # A step stays known for as long as any size contradicts the line, however old.
        errors = max(noise, MIN_NOISE) / np.sqrt(counts)
        misfits = np.abs(np.log(medians / (trend[0] + trend[1] * units)))
        if (misfits <= np.maximum(MAX_MISFIT, CERTAIN_ERRORS * errors)).all():
            fit = line_fit(np.column_stack((units, seconds)), trend)
        else:
            seconds = pool_except_dips(self._windows.knots())
            curve = plain = _pieces(units, seconds, sum(trend))
            if (np.diff(seconds) <= 0).any():
                plain = _pieces(units, rising(seconds, counts), sum(trend))
            fit = Fit(np.column_stack((units, seconds)), curve, plain)
        return replace(fit, trend=trend, misfit=float(np.median(misfits)))


def _pieces(units: Floats, seconds: Floats, first_seconds: float) -> Segments:
    """Return the pieces through these knots, and one at one unit."""
    steep = float(seconds[-1]) / float(units[-1])
    smaller = np.flatnonzero(units * MAX_LAST_RATIO <= units[-1])
    if len(smaller):
        other = int(smaller[-1])
        # A jump between the two must not count as a slope.
        steep = min(steep, float((seconds[-1] - seconds[other]) / (units[-1] - units[other])))
    if units[0] > 1:
        units = np.concatenate(([1.0], units))
        seconds = np.concatenate(([min(first_seconds, seconds[0])], seconds))
    return linear_times(units, seconds, max(steep, 0.0))
