"""What devices report of iterations, put together by iteration; in bounded memory. Pure."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from hetsched.job import IterationSeconds
from hetsched.transport.device_messages import IterationsDone, IterationTimes

MAX_RATES = 64
"""Reports over which the rate is measured."""


@dataclass(frozen=True)
class CompleteIteration:
    """An iteration that all devices of its epoch have reported, or several with the same rows."""

    iteration: int  # The last one
    rows: Mapping[str, int]  # Device -> its rows; `times`: mean seconds of its phases
    times: Mapping[str, IterationTimes]
    residual: float  # After the last one; NaN: the workload has no such number
    count: int = 1

    @property
    def seconds(self) -> float:
        """Of one iteration from its start to its end: the longest time of a device."""
        return max(
            (times.total for times in self.times.values()),
            default=0.0,
        )


@dataclass(frozen=True)
class _Record:
    """One iteration of a device, or several: means, and what was so after the last one."""

    last: int
    count: int
    times: IterationTimes
    residual: float
    rows: int


class IterationLog:
    """The iterations of one epoch, from the reports of its devices.

    Devices are at most one iteration apart, but report up to 0.25 s late, and records of several
    iterations may end later on one device than on another: an iteration is complete when records
    of all devices end with it or with the same later one.
    """

    def __init__(self, devices: Sequence[str], *, derives_waits: bool = False) -> None:
        self._records: dict[str, deque[_Record]] = {device: deque() for device in devices}
        self._derives_waits = derives_waits

    def add(self, device: str, done: IterationsDone) -> list[CompleteIteration]:
        """Add a report; return the iterations that are complete now, in order."""
        own, last = self._records[device], done.first - 1
        counts = done.counts or (1,) * len(done.phases)
        parts = zip(counts, done.phases, done.residuals, done.rows, strict=True)
        for count, times, residual, rows in parts:
            last += count
            own.append(_Record(last, count, times, residual, rows))
        complete = []
        while (end := self._common_end()) is not None:
            complete.append(self._take(end))
        return complete

    def discard(self) -> None:
        """Drop iterations that some device hasn't reported: it was lost."""
        for records in self._records.values():
            records.clear()

    def _common_end(self) -> int | None:
        """Return the first iteration with which records of all devices end; None: not yet."""
        end = 0
        ends = [(record.last for record in records) for records in self._records.values()]
        current = [next(each, None) for each in ends]
        while None not in current:
            present = [each for each in current if each is not None]
            end = max(present)
            if min(present) == end:
                return end
            for i, each in enumerate(present):
                if each < end:
                    current[i] = next(ends[i], None)
        return None

    def _take(self, end: int) -> CompleteIteration:
        """Remove the records up to `end` and return them as one."""
        taken = {device: _take(records, end) for device, records in self._records.items()}
        times = {device: record.times for device, record in taken.items()}
        if self._derives_waits:
            times = with_waits(times)
        rows = {device: record.rows for device, record in taken.items()}
        first = next(iter(taken.values()))
        return CompleteIteration(end, rows, times, first.residual, first.count)


def _take(records: deque[_Record], end: int) -> _Record:
    """Remove the records up to `end` and return them as one."""
    first = records.popleft()
    if first.last == end:
        return first
    parts = [first]
    while parts[-1].last < end:
        parts.append(records.popleft())
    count, last = sum(part.count for part in parts), parts[-1]
    times = _weighted_sum(parts).divided(count)
    return _Record(end, count, times, last.residual, last.rows)


def _weighted_sum(records: Iterable[_Record]) -> IterationTimes:
    total = IterationTimes(0.0)
    for record in records:
        total = total.plus(record.times, record.count)
    return total


def with_waits(times: Mapping[str, IterationTimes]) -> dict[str, IterationTimes]:
    """Return modelled times with the wait of each device for the slowest one."""
    busy = {device: t.compute + t.transfer + t.converge for device, t in times.items()}
    longest = max(busy.values())
    return {
        device: IterationTimes(t.compute, t.transfer, longest - busy[device], t.converge)
        for device, t in times.items()
    }


class PhaseSums:
    """The seconds of each device's phases over all iterations, and its rows at last."""

    def __init__(self) -> None:
        self._sums: dict[str, IterationTimes] = {}
        self.rows: dict[str, int] = {}

    def add(self, complete: CompleteIteration) -> None:
        count = complete.count
        for device, times in complete.times.items():
            sums = self._sums.get(device, IterationTimes(0.0))
            self._sums[device] = sums.plus(times, count)
        self.rows = dict(complete.rows)

    def of(self, device: str) -> IterationSeconds:
        sums = self._sums.get(device, IterationTimes(0.0))
        return IterationSeconds(**msgspec.structs.asdict(sums))

    @property
    def max_save_seconds(self) -> float:
        """Seconds for which the iterations have paused to be saved."""
        return max((sums.save for sums in self._sums.values()), default=0.0)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self._sums)


class IterationRate:
    """Iterations per second, over the last reports."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, int]] = []

    def add(self, iteration: int, now: float) -> None:
        if self._marks and self._marks[-1][0] == now:
            self._marks.pop()
        self._marks.append((now, iteration))
        del self._marks[:-MAX_RATES]

    @property
    def per_second(self) -> float | None:
        """None until two reports have come."""
        if len(self._marks) < 2:
            return None
        (start, first), (end, last) = self._marks[0], self._marks[-1]
        return (last - first) / (end - start) if end > start else None


MAX_SIZES = 32
"""Numbers of rows remembered per device; those with the fewest iterations are dropped first."""
MAX_TIMES = 32
"""Times kept per number of rows: the last ones."""


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
        for device, sizes in self._seconds.items():
            for rows, seconds in sizes.items():
                yield _median(device, rows, seconds)


def _median(device: str, rows: int, seconds: Sequence[_Seconds]) -> RowMedian:
    busy = statistics.median(each.busy for each in seconds)
    if not any(each.transfer for each in seconds):
        return RowMedian(device, rows, busy, None)
    compute = statistics.median(each.busy - each.transfer for each in seconds)
    return RowMedian(device, rows, busy, compute)
