"""The partial functional performance model: piecewise linear in speed (Clarke 5.2; DFPA)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from hetsched.errors import UsageError
from hetsched.models.curves.curve import NO_POINTS, Curve
from hetsched.models.curves.fitted_curve import FittedCurve
from hetsched.models.curves.isotonic import rising
from hetsched.models.curves.non_monotone import SegmentsWithDips, pool_except_dips
from hetsched.models.curves.segments import Floats, Segments, through_knots
from hetsched.models.curves.shape_rule import shape_fit
from hetsched.models.evidence.observations import ObservationWindows
from hetsched.models.validation import require_positive

Shape = Literal["rising", "paper", "dips"]


@dataclass(frozen=True)
class _Fit:
    """`curve` is evaluated; `rising` is the same curve with any dips removed."""

    points: Floats
    curve: Segments
    rising: Segments


class PiecewiseLinear(FittedCurve[_Fit], Curve):
    """Speed is linear between knots and constant outside them; times strictly increase.

    A new size is a new knot; more observations of a size are repeats, and the median of the last
    ones is the knot's time. Refitting starts from the raw observations, so the order of different
    sizes doesn't matter. Times that fall with size count as noise: isotonic regression pools them,
    weighted with the number of observations.

    Parameters
    ----------
    observations : iterable of (units, seconds), optional
    shape : "rising", "paper" or "dips"
        "rising": times rise with size. "paper": Clarke's rule in addition (`shape_fit`): speed
        rises and is concave up to a peak, then falls. "dips": times may fall with size where
        repeats confirm it (`pool_except_dips`); only `partition.optimal` finds the best split of
        such curves.
    near : float, optional
        Without it a change of speed is detected size by size. With it, sizes that differ by less
        than this factor are monitored together, and a change also scales all other sizes.

    Raises
    ------
    UsageError
        An observation is not positive and finite; `shape` is unknown; `near` is below 1.
    """

    def __init__(
        self,
        observations: Iterable[tuple[float, float]] = (),
        *,
        shape: Shape = "rising",
        near: float | None = None,
    ) -> None:
        if shape not in get_args(Shape):
            raise UsageError(f'shape: {shape!r}, it must be "rising", "paper" or "dips"')
        if near is not None and require_positive("near", near) < 1:
            raise UsageError(f"near: {near}, it must be 1 or more")
        super().__init__(ObservationWindows(observations, near=near))
        self._shape = shape
        self.may_fall = shape == "dips"

    @property
    def points(self) -> Floats:
        return self._fitted().points.copy() if len(self._windows) else NO_POINTS.copy()

    @property
    def segments(self) -> Segments:
        """Return the closed form; for a curve with dips, that of shape "rising"."""
        return self._fitted().rising

    @property
    def _evaluated(self) -> Segments:
        return self._fitted().curve

    def through(self, units: Floats, seconds: Floats) -> PiecewiseLinear:
        """Return a curve with this evidence that passes through other knots until it is refitted.

        Parameters
        ----------
        units, seconds : (n,) float64, n >= 1
            Both strictly increasing and positive.
        """
        other = PiecewiseLinear.of(self._windows)
        curve = through_knots(units, seconds)
        other._fit = _Fit(np.column_stack((units, seconds)), curve, curve)
        return other

    def evidence(self) -> ObservationWindows:
        return self._windows

    def scaled(self, factor: float) -> PiecewiseLinear | None:
        if not len(self.points):
            return None
        units, seconds = self.points.T
        return self.through(units, factor * seconds)

    def _refit(self) -> _Fit:
        units, seconds, counts = self._windows.medians()
        paper = self._shape == "paper"
        shaped = shape_fit(units, seconds) if paper else rising(seconds, counts)
        curve = plain = through_knots(units, shaped)
        if self._shape == "dips":
            shaped = pool_except_dips(self.knots())
            curve = SegmentsWithDips(through_knots(units, shaped))
        return _Fit(np.column_stack((units, shaped)), curve, plain)
