"""How much a device's speed varies from run to run, as the last runs show."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

MAX_RUNS = 16
"""Runs that count: the deviation of so many is known to 18 %, and they are soon forgotten."""
MIN_RUNS = 3
"""Fewer show nothing."""
MAX_LOG = math.log(2)
"""Larger logarithms count as this much: the tail of a core's share can't make up for more."""


class RunVariation:
    """The measured over the expected times of the last runs, including contended ones."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=MAX_RUNS)

    def __iter__(self) -> Iterator[float]:
        return iter(self._ratios)

    def add(self, ratio: float) -> None:
        """Add a run's measured over its expected time, > 0."""
        self._ratios.append(ratio)

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithm of speed; 0 with less than `MIN_RUNS` runs.

        About its mean: a wrong expectation shifts all runs alike.
        """
        if len(self._ratios) < MIN_RUNS:
            return 0.0
        logs = [min(max(math.log(ratio), -MAX_LOG), MAX_LOG) for ratio in self._ratios]
        mean = math.fsum(logs) / len(logs)
        squares = math.fsum((value - mean) ** 2 for value in logs)
        return math.sqrt(squares / (len(logs) - 1))
