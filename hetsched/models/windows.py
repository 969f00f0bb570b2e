"""Raw observations, kept apart from any fit: the last few of each size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median_low

import numpy as np

from hetsched.models.curve import checked
from hetsched.models.evidence import Knot, knot
from hetsched.models.segments import Floats

WINDOW = 5
"""Observations of one size that are remembered: a wild one is outvoted, three of a kind win."""


class Windows:
    """The last `WINDOW` times of each size; their median counts.

    Of an even number the lower median: disturbances only ever add to a time, so that of two that
    disagree the shorter is the likelier.
    """

    def __init__(self, observations: Iterable[tuple[float, float]] = ()) -> None:
        self._seconds: dict[float, deque[float]] = {}
        self.repeats = 0
        for units, seconds in observations:
            self.add(units, seconds)

    def add(self, units: float, seconds: float) -> None:
        """Remember one observation. Raises UsageError unless both are positive and finite."""
        units, seconds = checked(units, seconds)
        window = self._seconds.pop(units, None)
        self.repeats += window is not None
        # Put back at the end: the order of the dict is that of the latest observations.
        self._seconds[units] = window = window or deque(maxlen=WINDOW)
        window.append(seconds)

    def __len__(self) -> int:
        return len(self._seconds)

    def medians(self) -> tuple[Floats, Floats, Floats]:
        """Units (ascending), median seconds and number of observations, (n,) float64 each."""
        sizes = sorted(self._seconds)
        middle = [median_low(self._seconds[size]) for size in sizes]
        counts = [float(len(self._seconds[size])) for size in sizes]
        return np.array(sizes), np.array(middle), np.array(counts)

    def knots(self) -> list[Knot]:
        """What is known of each size, by units."""
        return [knot(size, list(self._seconds[size])) for size in sorted(self._seconds)]

    def latest(self) -> list[tuple[float, float, int]]:
        """Units, median seconds and number of observations, the size observed last first."""
        found = reversed(self._seconds.items())
        return [(size, median_low(window), len(window)) for size, window in found]
