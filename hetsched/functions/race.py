"""Several functions that compute the same: blocks show which is the fastest."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence

TRIED = 3
"""Blocks that each function computes first."""
REMEMBERED = 5
"""Blocks whose median is a function's time: one that was disturbed must not count."""
RETRY_BLOCKS = 200
"""The others compute one in so many blocks, in turn: what is fastest may change."""


class Race:
    """Chooses one of `count` functions for each block. Any thread may use it."""

    def __init__(self, count: int) -> None:
        self._seconds: list[deque[float]] = [deque(maxlen=REMEMBERED) for _ in range(count)]
        self._entrants: Sequence[int] = range(count)
        self._blocks = 0

    def choose(self) -> int:
        """Return the number of the function for the next block."""
        entrants = self._entrants
        untried = min(entrants, key=lambda number: len(self._seconds[number]))
        if len(self._seconds[untried]) < TRIED:
            return untried
        self._blocks += 1
        turn, rest = divmod(self._blocks, RETRY_BLOCKS)
        if not rest:
            return entrants[turn % len(entrants)]
        return min(entrants, key=lambda number: statistics.median(self._seconds[number]))

    def note(self, number: int, seconds_per_unit: float) -> None:
        self._seconds[number].append(seconds_per_unit)

    def leave(self, number: int) -> None:
        """Take a function out that has failed; the first one stays."""
        self._entrants = [each for each in self._entrants if each != number or not each]
