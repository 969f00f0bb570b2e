"""What the curves that learn have in common: their evidence, and a fit that follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np

from hetsched.models.curves.curve import NO_POINTS, unknown
from hetsched.models.curves.segments import Floats
from hetsched.models.evidence.confidence import Knot
from hetsched.models.evidence.drift import Change
from hetsched.models.evidence.observations import Windows

Fit = TypeVar("Fit")
Self = TypeVar("Self", bound="Learned")  # type: ignore[type-arg]


class Learned(ABC, Generic[Fit]):
    """A curve that is fitted anew from its raw observations whenever these have changed.

    Raises
    ------
    UsageError
        An observation is not positive and finite.
    """

    def __init__(self, observations: Iterable[tuple[float, float]] | Windows = ()) -> None:
        if not isinstance(observations, Windows):
            observations = Windows(observations)
        self._windows = observations
        self._fit: Fit | None = None

    @classmethod
    def of(cls: type[Self], windows: Windows) -> Self:
        """The curve of evidence that was gathered elsewhere; what comes later isn't shared."""
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
        """Observations of a size that was known already (the papers' accuracy points)."""
        return self._windows.repeats

    @property
    def change(self) -> Change | None:
        """What the last observation made believed: that speed has changed, and by how much."""
        return self._windows.change

    def knots(self) -> list[Knot]:
        """The evidence, by units: median, number of repeats and confidence interval of each size.

        As observed: where a curve doesn't go through its observations, `points` may differ.
        """
        return self._windows.knots()

    def latest(self) -> list[tuple[float, float, int]]:
        """Units, median seconds and number of observations, the size observed last first."""
        return self._windows.latest()

    def times(self) -> dict[float, list[float]]:
        """Seconds of each size that count, by units."""
        return self._windows.times()

    @property
    def doubtful(self) -> bool:
        """Whether it is only presumed, from other work, that the device takes longer now."""
        return self._windows.doubtful

    def observed(self, least: float, most: float) -> int:
        """Observations that count, of sizes from `least` to `most` units."""
        return sum(count for size, _, count in self.latest() if least <= size <= most)

    def _fitted(self) -> Fit:
        if self._fit is None:
            if not len(self._windows):
                raise unknown(type(self).__name__)
            self._fit = self._refit()
        return self._fit

    @abstractmethod
    def _refit(self) -> Fit:
        """The fit to the observations, of which there is at least one."""
