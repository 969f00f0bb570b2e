"""What devices report of iterations, put together by iteration; in bounded memory. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hetsched.job import IterationSeconds
from hetsched.transport.iterations.messages import IterationsDone, IterationTimes

MAX_RATES = 64
"""Reports over which the rate is measured. Arbitrary."""


@dataclass(frozen=True)
class CompleteIteration:
    """An iteration that all devices of its epoch have reported.

    Attributes
    ----------
    rows, times : mapping
        Device -> its rows, and seconds of its phases.
    residual : float
        After it; NaN: the workload has no such number.
    """

    iteration: int
    rows: Mapping[str, int]
    times: Mapping[str, IterationTimes]
    residual: float

    @property
    def seconds(self) -> float:
        """From its start to its end: the longest time of a device."""
        return max(
            (t.compute + t.transfer + t.wait + t.converge for t in self.times.values()),
            default=0.0,
        )


@dataclass
class _Partial:
    rows: dict[str, int] = field(default_factory=dict)
    times: dict[str, IterationTimes] = field(default_factory=dict)
    residual: float = math.nan


class IterationLog:
    """The iterations of one epoch, from the reports of its devices.

    Devices are at most one iteration apart, but report up to 50 ms late.
    """

    def __init__(self, devices: Sequence[str], *, derives_waits: bool = False) -> None:
        self._devices = tuple(devices)
        self._derives_waits = derives_waits
        self._partial: dict[int, _Partial] = {}

    def add(self, device: str, done: IterationsDone) -> list[CompleteIteration]:
        """Add a report; return the iterations that are complete now, in order."""
        complete = []
        for offset, times in enumerate(done.phases):
            iteration = done.first + offset
            partial = self._partial.setdefault(iteration, _Partial())
            partial.rows[device] = done.rows[offset]
            partial.times[device] = times
            partial.residual = done.residuals[offset]
            if len(partial.times) == len(self._devices):
                complete.append(self._completed(iteration))
        return complete

    def _completed(self, iteration: int) -> CompleteIteration:
        partial = self._partial.pop(iteration)
        rows = {device: partial.rows[device] for device in self._devices}
        times = {device: partial.times[device] for device in self._devices}
        if self._derives_waits:
            times = with_waits(times)
        return CompleteIteration(iteration, rows, times, partial.residual)

    def discard(self) -> None:
        """Drop iterations that some device hasn't reported: it was lost."""
        self._partial.clear()


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
        for device, times in complete.times.items():
            sums = self._sums.get(device, IterationSeconds())
            self._sums[device] = IterationSeconds(
                sums.compute + times.compute,
                sums.transfer + times.transfer,
                sums.wait + times.wait,
                sums.converge + times.converge,
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
