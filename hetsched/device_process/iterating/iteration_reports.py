"""Reports of finished iterations, several in one message."""

from __future__ import annotations

import time
from collections.abc import Callable

from hetsched.transport.iterations.messages import IterationsDone, IterationTimes

MAX_REPORT_SECONDS = 0.05
"""Between two reports while iterations are shorter."""
MAX_REPORT_ITERATIONS = 500
"""In one message, which then fits into the socket."""


class IterationReports:
    """The reports of one device in an epoch."""

    def __init__(self, job: int, device: int, send: Callable[[IterationsDone], None]) -> None:
        self._job = job
        self._device = device
        self._send = send
        self._first = 0
        self._phases: list[IterationTimes] = []
        self._residuals: list[float] = []
        self._rows: list[int] = []
        self._late = 0
        self._since = time.monotonic()

    def add(
        self, iteration: int, times: IterationTimes, residual: float, rows: int, late: int
    ) -> None:
        """Add a finished iteration; send all if it is time."""
        if not self._phases:
            self._first = iteration
        self._phases.append(times)
        self._residuals.append(residual)
        self._rows.append(rows)
        self._late += late
        is_due = time.monotonic() - self._since >= MAX_REPORT_SECONDS
        if is_due or len(self._phases) >= MAX_REPORT_ITERATIONS:
            self.flush()

    def flush(self) -> None:
        """Send what hasn't been sent."""
        self._since = time.monotonic()
        if not self._phases:
            return
        report = IterationsDone(
            self._job,
            self._device,
            self._first,
            tuple(self._phases),
            tuple(self._residuals),
            tuple(self._rows),
            self._late,
        )
        self._phases, self._residuals, self._rows, self._late = [], [], [], 0
        self._send(report)
