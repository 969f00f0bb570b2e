"""How long whole iterations took, with waits, by split: the noise that a gain must exceed."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import fmean, median

from hetsched.partition.balancing.run_history import Shares

DEVIATION_PER_DIFFERENCE = math.sqrt(math.pi) / 2
"""Standard deviation over the mean absolute difference of two values, for normal noise."""
MAX_SPLITS = 8
"""Splits kept, the latest."""
MIN_SECONDS = 1e-9
"""Shorter times can't be measured."""
MAX_TOTALS = 16
"""Times kept of each."""


class IterationTotals:
    """Seconds of iterations by split."""

    def __init__(self) -> None:
        self._totals: dict[Shares, deque[float]] = {}

    def add(self, shares: Shares, seconds: float) -> None:
        """Record an iteration."""
        totals = self._totals.pop(shares, None) or deque(maxlen=MAX_TOTALS)
        totals.append(seconds)
        self._totals[shares] = totals
        if len(self._totals) > MAX_SPLITS:
            del self._totals[next(iter(self._totals))]

    def typical(self, shares: Shares) -> float:
        """Return the median seconds with `shares`, which were measured."""
        return median(self._totals[shares])

    def count(self, shares: Shares) -> int:
        """Return how often `shares` were measured."""
        return len(self._totals.get(shares, ()))

    @property
    def noise(self) -> float | None:
        """Standard deviation of the logarithm of a time; None if no split was repeated.

        From differences of successive times, so that a lasting change of speed counts once.
        """
        differences = [
            abs(math.log(max(after, MIN_SECONDS) / max(before, MIN_SECONDS)))
            for totals in self._totals.values()
            for before, after in pairwise(totals)
        ]
        return DEVIATION_PER_DIFFERENCE * fmean(differences) if differences else None
