"""What devices report of iterations, put together by iteration; in bounded memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hetsched.job import IterationSeconds
from hetsched.transport.iterations.messages import IterationsDone, IterationTimes

MAX_RATES = 64
"""Reports over which the rate is measured. Arbitrary."""
DETAILED_ITERATIONS = 1000
"""Of a job, that are recorded one by one however short they are. Arbitrary."""
RECORD_SECONDS = 0.005
"""Later ones: each record is of so many seconds at least. Arbitrary: a hundred times its cost."""
MAX_MERGED = 256
"""Iterations of one record."""


@dataclass(frozen=True)
class CompleteIteration:
    """An iteration that all devices of its epoch have reported, or several with the same rows.

    Attributes
    ----------
    iteration : int
        The last one.
    rows, times : mapping
        Device -> its rows, and mean seconds of its phases.
    residual : float
        After the last one; NaN: the workload has no such number.
    count : int
    """

    iteration: int
    rows: Mapping[str, int]
    times: Mapping[str, IterationTimes]
    residual: float
    count: int = 1

    @property
    def seconds(self) -> float:
        """Of one iteration from its start to its end: the longest time of a device."""
        return max(
            (t.compute + t.transfer + t.wait + t.converge for t in self.times.values()),
            default=0.0,
        )


@dataclass
class _Reports:
    """What one device has reported of iterations that others haven't."""

    rows: list[int] = field(default_factory=list)
    times: list[IterationTimes] = field(default_factory=list)
    residuals: list[float] = field(default_factory=list)

    def take(self, count: int) -> _Reports:
        """Remove and return the first ones."""
        taken = _Reports(self.rows[:count], self.times[:count], self.residuals[:count])
        del self.rows[:count], self.times[:count], self.residuals[:count]
        return taken


class IterationLog:
    """The iterations of one epoch, from the reports of its devices.

    Devices are at most one iteration apart, but report up to 50 ms late. In a long job short
    iterations with the same rows become one record: each record costs tens of microseconds of a
    core that computes.
    """

    def __init__(self, devices: Sequence[str], *, derives_waits: bool = False) -> None:
        self._reports = {device: _Reports() for device in devices}
        self._derives_waits = derives_waits
        self._next: int | None = None

    def add(self, device: str, done: IterationsDone) -> list[CompleteIteration]:
        """Add a report; return the iterations that are complete now, in order."""
        if self._next is None:
            self._next = done.first
        own = self._reports[device]
        own.rows += done.rows
        own.times += done.phases
        own.residuals += done.residuals
        ready = min(len(reports.times) for reports in self._reports.values())
        if not ready:
            return []
        first, self._next = self._next, self._next + ready
        taken = {name: reports.take(ready) for name, reports in self._reports.items()}
        return list(self._records(first, ready, taken))

    def _records(
        self, first: int, ready: int, taken: Mapping[str, _Reports]
    ) -> Iterator[CompleteIteration]:
        step = _iterations_per_record(first, taken)
        for start in range(0, ready, step):
            stop = min(ready, start + step)
            part = slice(start, stop)
            times = {device: _mean(each.times[part]) for device, each in taken.items()}
            if self._derives_waits:
                times = with_waits(times)
            rows = {device: each.rows[start] for device, each in taken.items()}
            residual = next(iter(taken.values())).residuals[stop - 1]
            yield CompleteIteration(first + stop - 1, rows, times, residual, stop - start)

    def discard(self) -> None:
        """Drop iterations that some device hasn't reported: it was lost."""
        for reports in self._reports.values():
            reports.take(len(reports.times))
        self._next = None


def _iterations_per_record(first: int, taken: Mapping[str, _Reports]) -> int:
    """Return how many iterations become one record: 1, unless they are many and short."""
    if first <= DETAILED_ITERATIONS:
        return 1
    if any(each.rows.count(each.rows[0]) < len(each.rows) for each in taken.values()):
        return 1
    times = [each.times[0] for each in taken.values()]
    seconds = max(t.compute + t.transfer + t.wait + t.converge for t in times)
    return max(1, min(MAX_MERGED, int(RECORD_SECONDS / seconds))) if seconds > 0 else MAX_MERGED


def _mean(times: Sequence[IterationTimes]) -> IterationTimes:
    count = len(times)
    if count == 1:
        return times[0]
    return IterationTimes(
        sum(t.compute for t in times) / count,
        sum(t.transfer for t in times) / count,
        sum(t.wait for t in times) / count,
        sum(t.converge for t in times) / count,
    )


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
        self._sums: dict[str, IterationSeconds] = {}
        self.rows: dict[str, int] = {}

    def add(self, complete: CompleteIteration) -> None:
        """Add an iteration."""
        count = complete.count
        for device, times in complete.times.items():
            sums = self._sums.get(device, IterationSeconds())
            self._sums[device] = IterationSeconds(
                sums.compute + count * times.compute,
                sums.transfer + count * times.transfer,
                sums.wait + count * times.wait,
                sums.converge + count * times.converge,
            )
        self.rows = dict(complete.rows)

    def of(self, device: str) -> IterationSeconds:
        """Return the sums of `device`; zeros if it has reported nothing."""
        return self._sums.get(device, IterationSeconds())

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices that have reported."""
        return tuple(self._sums)


class IterationRate:
    """Iterations per second, over the last reports."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, int]] = []

    def add(self, iteration: int, now: float) -> None:
        """Record that `iteration` was reported at `now`, seconds."""
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
