"""Measured times of iterations by device and rows, as evidence for models; bounded. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from hetsched.engine.iterating.iteration_log import CompleteIteration

MAX_SIZES = 32
"""Numbers of rows remembered per device; those with the fewest iterations are dropped first."""
MAX_TIMES = 32
"""Times kept per number of rows: the last ones. Arbitrary."""


class RowEvidence:
    """Seconds of iterations, without waits, for each number of rows of each device."""

    def __init__(self) -> None:
        self._seconds: dict[str, dict[int, list[float]]] = {}
        self._previous: dict[str, int] = {}

    def add(self, complete: CompleteIteration) -> None:
        """Add an iteration; not if rows have just moved, which fills caches."""
        for device, times in complete.times.items():
            rows = complete.rows[device]
            if rows and self._previous.get(device) == rows:
                self._add(device, rows, times.compute + times.transfer + times.converge)
            self._previous[device] = rows

    def _add(self, device: str, rows: int, seconds: float) -> None:
        sizes = self._seconds.setdefault(device, {})
        if rows not in sizes and len(sizes) >= MAX_SIZES:
            del sizes[min(sizes, key=lambda size: len(sizes[size]))]
        times = sizes.setdefault(rows, [])
        times.append(seconds)
        del times[:-MAX_TIMES]

    def medians(self) -> Iterator[tuple[str, int, float]]:
        """Yield device, rows, and the median seconds of an iteration."""
        for device, sizes in self._seconds.items():
            for rows, seconds in sizes.items():
                yield device, rows, statistics.median(seconds)
