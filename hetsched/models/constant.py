"""Constant speed: the CPM of Clarke, section 3. What the last run said, whatever the size."""

from __future__ import annotations

import numpy as np

from hetsched.errors import UsageError
from hetsched.models.curve import NO_POINTS, Curve, checked, unknown
from hetsched.models.segments import Floats, Segments


class Constant(Curve):
    """Time proportional to the load. Believes the last observation only, as the paper does.

    Parameters
    ----------
    speed : float, units/s, optional
        To start with.

    Raises
    ------
    UsageError
        The speed is not positive and finite.
    """

    def __init__(self, speed: float | None = None) -> None:
        self._last: tuple[float, float] | None = None
        self._segments: Segments | None = None
        if speed is not None:
            if not 0 < speed < float("inf"):
                raise UsageError(f"speed: {speed} units/s, it must be positive and finite")
            self._segments = _proportional(float(speed))

    def observe(self, units: float, seconds: float) -> None:
        self._last = checked(units, seconds)
        self._segments = _proportional(self._last[0] / self._last[1])

    @property
    def points(self) -> Floats:
        return NO_POINTS.copy() if self._last is None else np.array([self._last])

    @property
    def segments(self) -> Segments:
        if self._segments is None:
            raise unknown("Constant")
        return self._segments


def _proportional(speed: float) -> Segments:
    return Segments([(0.0, 0.0, speed, 1.0, 0.0)])
