"""Measured distributions, with each device's times in the latest runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

MAX_RUNS = 5
"""Runs kept of one distribution; their median counts."""
MAX_DISTRIBUTIONS = 256
"""Distributions kept, the latest."""

Shares = tuple[int, ...]


class RunHistory:
    """Measured distributions and the times of each device."""

    def __init__(self) -> None:
        self._runs: dict[Shares, deque[tuple[float, ...]]] = {}

    def __contains__(self, shares: Shares) -> bool:
        return shares in self._runs

    def add(self, shares: Shares, seconds: Sequence[float]) -> None:
        """Record a run."""
        runs = self._runs.pop(shares, None) or deque(maxlen=MAX_RUNS)
        runs.append(tuple(seconds))
        self._runs[shares] = runs
        if len(self._runs) > MAX_DISTRIBUTIONS:
            del self._runs[next(iter(self._runs))]

    def clear(self) -> None:
        """Forget all runs: a device has changed, so their times are no longer valid."""
        self._runs.clear()

    def seconds(self, shares: Shares) -> list[float]:
        """Return each device's median time with `shares`."""
        return [median(times) for times in zip(*self._runs[shares], strict=True)]

    def makespan(self, shares: Shares) -> float:
        """Return the median of the runs' longest times."""
        return median(max(times) for times in self._runs[shares])

    def fastest(self) -> Shares:
        """Return the distribution with the shortest makespan."""
        return min(self._runs, key=self.makespan)
