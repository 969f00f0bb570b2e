"""After which iterations devices save their rows, for the loss of one with its own memory. Pure.

Saving takes time, and what comes after it is repeated when such a device is lost. So iterations
are saved as rarely as saving takes a small part of the time, but often enough that little work is
repeated. Where both can't be had, less is repeated.
"""

from __future__ import annotations

import math

MAX_REPEATED = 0.02
"""Part of the work that a loss may repeat, besides one iteration."""
MAX_TIME = 0.02
"""Part of the time that saving may take."""


class SaveSchedule:
    """When to save, in one epoch.

    Parameters
    ----------
    total : int or None
        Iterations of the whole job; None: unknown, so only those before count as its work.
    """

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._last: int | None = None
        self._save_seconds = 0.0
        self._iteration_seconds = 0.0
        self._iterations = 0

    def add(self, seconds: float) -> None:
        """Record an iteration, without what was saved after it."""
        self._iteration_seconds += seconds
        self._iterations += 1

    def saved(self, iteration: int, seconds: float) -> None:
        """Record that `iteration` was saved in `seconds`."""
        self._last = iteration
        self._save_seconds = seconds

    def interval(self, iteration: int) -> int:
        """Return how many iterations may follow `iteration` until the next one is saved.

        1: saving pays only every time or not at all, so rows shouldn't be held back.
        """
        work = iteration if self._total is None else max(iteration, self._total)
        longest = 1 + int(MAX_REPEATED * work)
        if self._last is None or not self._iterations or not self._iteration_seconds:
            return longest
        each = self._iteration_seconds / self._iterations
        return max(2, min(longest, math.ceil(self._save_seconds / each / MAX_TIME)))

    def is_due(self, iteration: int) -> bool:
        """Return whether to save `iteration`, which has been computed."""
        interval = self.interval(iteration)
        if self._last is None:
            return interval > 1
        return iteration - self._last >= interval
