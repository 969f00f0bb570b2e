"""A curve plus a fixed delay, for a core that also does other work."""

from __future__ import annotations

import numpy as np

from hetsched.errors import UsageError
from hetsched.models.curves.curve import Curve, SpeedFunction, planner_curve
from hetsched.models.curves.segments import Floats, Segments


def delayed(curve: SpeedFunction, seconds: float) -> SpeedFunction:
    """Return `curve` plus `seconds`; a curve without a closed form is returned unchanged."""
    closed_form = planner_curve(curve).closed_form() if seconds > 0 else None
    return curve if closed_form is None else Delayed(closed_form, seconds)


class Delayed(Curve):
    """time(x) = curve.time(x) + seconds for x > 0. It doesn't learn.

    Parameters
    ----------
    curve : Segments
    seconds : float
        Not negative.
    """

    def __init__(self, curve: Segments, seconds: float) -> None:
        self.seconds = seconds
        self._segments = _later(curve, seconds)

    def observe(self, units: float, seconds: float) -> None:
        raise UsageError("a delayed curve doesn't learn; call observe of the original curve")

    @property
    def points(self) -> Floats:
        """(n, 2) float64, units and seconds: the knots of the pieces beyond 0 units."""
        seconds, units = self._segments.table[:2, self._segments.table[1] > 0]
        return np.column_stack((units, seconds))

    @property
    def repeats(self) -> int:
        return 0

    @property
    def segments(self) -> Segments:
        return self._segments


def _later(segments: Segments, seconds: float) -> Segments:
    table = segments.table.copy()
    table[0] += seconds
    no_units = np.array([[0.0, 0.0, 0.0, 1.0, 0.0]])
    return Segments([tuple(piece) for piece in np.concatenate([no_units, table.T]).tolist()])
