"""The partial functional performance model: piecewise linear in speed (Clarke 5.2; DFPA)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import numpy as np

from hetsched.errors import UsageError
from hetsched.models.curve import NO_POINTS, Curve, unknown
from hetsched.models.evidence import Knot
from hetsched.models.isotonic import rising
from hetsched.models.segments import Floats, Segments, through_knots
from hetsched.models.shape import shape_fit
from hetsched.models.windows import Windows

Shape = Literal["rising", "paper"]


class PiecewiseLinear(Curve):
    """Speed is linear between knots and constant outside them; times strictly increase.

    A new size is a new knot; more observations of a known size are repeats, of which the median of
    the last few is the knot's time. The fit is made anew from the raw observations, so that their
    order across sizes doesn't matter. Times that fall with size are pooled by isotonic regression,
    weighted with the number of observations: such a dip is taken for noise.

    Parameters
    ----------
    observations : iterable of (units, seconds), optional
    shape : "rising" or "paper"
        "rising" asks no more than that. "paper" is Clarke's own rule (`shape_fit`): speed rises
        and is concave up to a peak, then falls; times rise all the same.

    Raises
    ------
    UsageError
        An observation is not positive and finite; no such shape.
    """

    def __init__(
        self, observations: Iterable[tuple[float, float]] = (), *, shape: Shape = "rising"
    ) -> None:
        if shape not in get_args(Shape):
            raise UsageError(f'shape: {shape!r}, it must be "rising" or "paper"')
        self._shape = shape
        self._windows = Windows(observations)
        self._fit: tuple[Floats, Segments] | None = None

    def observe(self, units: float, seconds: float) -> None:
        self._windows.add(units, seconds)
        self._fit = None

    @property
    def points(self) -> Floats:
        return self._fitted()[0].copy() if len(self._windows) else NO_POINTS.copy()

    @property
    def repeats(self) -> int:
        """Observations of a size that was known already (the paper's accuracy points)."""
        return self._windows.repeats

    def knots(self) -> list[Knot]:
        """The evidence, by units: median, number of repeats and confidence interval of each size.

        As observed: where times fall with size, `points` may differ.
        """
        return self._windows.knots()

    def latest(self) -> list[tuple[float, float, int]]:
        """Units, median seconds and number of observations, the size observed last first."""
        return self._windows.latest()

    def observed(self, least: float, most: float) -> int:
        """Observations that count, of sizes from `least` to `most` units."""
        return sum(count for size, _, count in self.latest() if least <= size <= most)

    @property
    def segments(self) -> Segments:
        return self._fitted()[1]

    def _fitted(self) -> tuple[Floats, Segments]:
        if self._fit is None:
            if not len(self._windows):
                raise unknown("PiecewiseLinear")
            units, seconds, counts = self._windows.medians()
            if self._shape == "paper":
                seconds = shape_fit(units, seconds)
            else:
                seconds = rising(seconds, counts)
            self._fit = np.column_stack((units, seconds)), through_knots(units, seconds)
        return self._fit
