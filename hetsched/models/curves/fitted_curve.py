"""The base of curves that are fitted to observations: their evidence, and the fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np

from hetsched.models.curves.curve import NO_POINTS, no_observations
from hetsched.models.curves.segments import Floats
from hetsched.models.evidence.change_detector import SpeedChange
from hetsched.models.evidence.confidence import Knot
from hetsched.models.evidence.observations import ObservationWindows

Fit = TypeVar("Fit")
Self = TypeVar("Self", bound="FittedCurve")  # type: ignore[type-arg]


class FittedCurve(ABC, Generic[Fit]):
    """A curve that is refitted to its raw observations after each change to them.

    Raises
    ------
    UsageError
        An observation is not positive and finite.
    """

    def __init__(
        self, observations: Iterable[tuple[float, float]] | ObservationWindows = ()
    ) -> None:
        if not isinstance(observations, ObservationWindows):
            observations = ObservationWindows(observations)
        self._windows = observations
        self._fit: Fit | None = None

    @classmethod
    def of(cls: type[Self], windows: ObservationWindows) -> Self:
        """Make a curve of a copy of `windows`."""
        curve = cls()
        curve._windows = windows.copy()
        return curve

    def observe(self, units: float, seconds: float) -> None:
        """Learn that `units` took `seconds`. Raises UsageError unless positive and finite."""
        self._windows.add(units, seconds)
        self._fit = None

    @property
    def points(self) -> Floats:
        """(n, 2) float64, units and seconds: median time of each size, by units."""
        if not len(self._windows):
            return NO_POINTS.copy()
        return np.column_stack(self._windows.medians()[:2])

    @property
    def repeats(self) -> int:
        """Observations of a size that was measured before (the papers' accuracy points)."""
        return self._windows.repeats

    @property
    def change(self) -> SpeedChange | None:
        """The change of speed that the last observation confirmed."""
        return self._windows.change

    def knots(self) -> list[Knot]:
        """Return the evidence by units: median, repeats and confidence interval of each size.

        These are observed times; `points` differs where the curve doesn't pass through them.
        """
        return self._windows.knots()

    def latest(self) -> list[tuple[float, float, int]]:
        """Return units, median seconds and number of observations, the latest size first."""
        return self._windows.latest()

    def times(self) -> dict[float, list[float]]:
        """Return the seconds observed at each size, by units."""
        return self._windows.times()

    def _fitted(self) -> Fit:
        if self._fit is None:
            if not len(self._windows):
                raise no_observations(type(self).__name__)
            self._fit = self._refit()
        return self._fit

    @abstractmethod
    def _refit(self) -> Fit:
        """Fit the observations, at least one."""
