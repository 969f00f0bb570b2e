"""Reports of finished iterations, several in one message, and in long jobs in one record."""

from __future__ import annotations

import time
from collections.abc import Callable

from hetsched.transport.device_messages import IterationsDone, IterationTimes

MIN_REPORT_SECONDS, MAX_REPORT_SECONDS = 0.05, 0.25
"""Between two reports while iterations are shorter: each takes 0.2 ms of a core that computes."""
REPORT_FRACTION = 0.05
"""Of the time of the epoch so far, between these limits."""
MAX_RECORDS = 500
"""In one message, which then fits into the socket."""
DETAILED_ITERATIONS = 1000
"""Of a job, that are reported one by one however short they are. Arbitrary."""
RECORDS_PER_REPORT = 8
"""Later ones: each record takes 0.1 ms of the engine. A reading of the balance needs few."""
SINGLE_RECORDS = 2
"""Records begun at the beginning of a split: that of its first iteration, which is no measure of
the others, and the one for them."""


class IterationReports:
    """The reports of one device in an epoch.

    Iterations share a record if their numbers divided by the record's size, a power of two, are
    equal. So records of different devices, whose sizes may differ for a while, often end together.
    """

    def __init__(
        self,
        attempt: int,
        send: Callable[[IterationsDone], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._attempt = attempt
        self._send = send
        self._clock = clock
        self._first = 0
        self._last = 0
        self._sums: list[IterationTimes] = []
        self._counts: list[int] = []
        self._residuals: list[float] = []
        self._rows: list[int] = []
        self._late = 0
        self._size = 1
        self._singles = SINGLE_RECORDS
        self._began = self._since = clock()

    def add(
        self, iteration: int, times: IterationTimes, residual: float, rows: int, late: int
    ) -> None:
        """Add a finished iteration; send all if it is time."""
        if not self._sums:
            self._first = iteration
        shares_record = iteration // self._size == (iteration - 1) // self._size
        if shares_record and self._sums and not self._singles:
            self._sums[-1] = self._sums[-1].plus(times)
            self._counts[-1] += 1
            self._residuals[-1] = residual
        else:
            self._sums.append(times)
            self._counts.append(1)
            self._residuals.append(residual)
            self._rows.append(rows)
            self._singles = max(0, self._singles - 1)
        self._last = iteration
        self._late += late
        if self._clock() - self._since >= self._interval or len(self._sums) >= MAX_RECORDS:
            self.flush()

    def begin_split(self) -> None:
        """Begin a new record: the next iteration is the first one with other rows."""
        self._singles = SINGLE_RECORDS

    def flush(self) -> None:
        """Send what hasn't been sent."""
        now, since = self._clock(), self._since
        self._since = now
        if not self._sums:
            return
        report = IterationsDone(
            self._attempt,
            self._first,
            tuple(map(IterationTimes.divided, self._sums, self._counts)),
            tuple(self._residuals),
            tuple(self._rows),
            self._late,
            tuple(self._counts),
        )
        if self._last >= DETAILED_ITERATIONS:
            mean_seconds = (now - since) / sum(self._counts)
            self._size = _record_size(self._interval / RECORDS_PER_REPORT, mean_seconds)
        self._sums, self._counts, self._residuals, self._rows = [], [], [], []
        self._late = 0
        self._send(report)

    @property
    def _interval(self) -> float:
        """Seconds between two reports."""
        seconds = REPORT_FRACTION * (self._since - self._began)
        return min(MAX_REPORT_SECONDS, max(MIN_REPORT_SECONDS, seconds))


def _record_size(seconds: float, iteration_seconds: float) -> int:
    """Return the largest power of two iterations that take at most `seconds`; at least 1."""
    iterations = int(seconds / max(iteration_seconds, 1e-9))
    return 1 << max(0, iterations.bit_length() - 1)
