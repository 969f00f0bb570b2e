"""How far the runs of a job usually are from their prediction: noise, or news. Pure."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

MAX_RUNS = 16
"""Runs that count, so that a machine that has become quiet is judged as one soon."""
MIN_RUNS = 8
"""Fewer runs don't show what is usual."""
USUAL_FACTOR = 3.0
"""Deviations up to this multiple of the median one are usual: two standard deviations, if they
are normal."""


class UsualDeviation:
    """The deviations, at least 0, of the last runs.

    Parameters
    ----------
    least : float
        Deviations up to this are always usual.
    """

    def __init__(self, least: float) -> None:
        self._least = least
        self._last: deque[float] = deque(maxlen=MAX_RUNS)

    def is_usual(self, deviation: float) -> bool:
        """Return whether earlier runs deviated about as much."""
        if deviation <= self._least:
            return True
        return len(self._last) >= MIN_RUNS and deviation <= USUAL_FACTOR * median(self._last)

    def add(self, deviation: float) -> None:
        """Record a run, after it has been judged; an infinite deviation shows nothing."""
        if math.isfinite(deviation):
            self._last.append(deviation)
