"""Constant speed (the CPM of Clarke, section 3): the last run's speed holds for every size."""

from __future__ import annotations

import numpy as np

from hetsched.models.curves.curve import NO_POINTS, Curve, no_observations
from hetsched.models.curves.segments import Floats, Segments
from hetsched.models.validation import require_observation, require_positive


class Constant(Curve):
    """Time proportional to the load. Only the last observation counts, as in the paper.

    Parameters
    ----------
    speed : float, units/s, optional
        Used until the first observation.

    Raises
    ------
    UsageError
        The speed is not positive and finite.
    """

    def __init__(self, speed: float | None = None) -> None:
        self._last: tuple[float, float] | None = None
        self._segments: Segments | None = None
        self._repeats = 0
        if speed is not None:
            self._segments = _proportional(require_positive("speed", speed, " units/s"))

    def observe(self, units: float, seconds: float) -> None:
        last = require_observation(units, seconds)
        self._repeats += self._last is not None and self._last[0] == last[0]
        self._last = last
        self._segments = _proportional(self._last[0] / self._last[1])

    @property
    def points(self) -> Floats:
        return NO_POINTS.copy() if self._last is None else np.array([self._last])

    @property
    def repeats(self) -> int:
        return self._repeats

    @property
    def segments(self) -> Segments:
        if self._segments is None:
            raise no_observations("Constant")
        return self._segments


def _proportional(speed: float) -> Segments:
    return Segments([(0.0, 0.0, speed, 1.0, 0.0)])
