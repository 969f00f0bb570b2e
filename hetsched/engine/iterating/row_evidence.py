"""Measured times of iterations by device and rows, as evidence for models; bounded. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hetsched.engine.iterating.iteration_log import CompleteIteration

MAX_SIZES = 32
"""Numbers of rows remembered per device; those with the fewest iterations are dropped first."""
MAX_TIMES = 32
"""Times kept per number of rows: the last ones. Arbitrary."""


class RowMedian(NamedTuple):
    """Median seconds of a device's iterations with so many rows.

    `seconds`: without waits. `compute`: these without copies, if there were any; else None.
    """

    device: str
    rows: int
    seconds: float
    compute: float | None


class _Seconds(NamedTuple):
    busy: float
    transfer: float


class RowEvidence:
    """Seconds of iterations, without waits, for each number of rows of each device."""

    def __init__(self) -> None:
        self._seconds: dict[str, dict[int, list[_Seconds]]] = {}
        self._previous: dict[str, int] = {}

    def add(self, complete: CompleteIteration) -> None:
        """Add an iteration; not if rows have just moved, which fills caches."""
        for device, times in complete.times.items():
            rows = complete.rows[device]
            if rows and self._previous.get(device) == rows:
                busy = times.compute + times.transfer + times.converge
                self._add(device, rows, _Seconds(busy, times.transfer))
            self._previous[device] = rows

    def _add(self, device: str, rows: int, seconds: _Seconds) -> None:
        sizes = self._seconds.setdefault(device, {})
        if rows not in sizes and len(sizes) >= MAX_SIZES:
            del sizes[min(sizes, key=lambda size: len(sizes[size]))]
        times = sizes.setdefault(rows, [])
        times.append(seconds)
        del times[:-MAX_TIMES]

    def medians(self) -> Iterator[RowMedian]:
        """Yield the medians of each device and number of rows."""
        for device, sizes in self._seconds.items():
            for rows, seconds in sizes.items():
                yield _median(device, rows, seconds)


def _median(device: str, rows: int, seconds: Sequence[_Seconds]) -> RowMedian:
    busy = statistics.median(each.busy for each in seconds)
    if not any(each.transfer for each in seconds):
        return RowMedian(device, rows, busy, None)
    compute = statistics.median(each.busy - each.transfer for each in seconds)
    return RowMedian(device, rows, busy, compute)
