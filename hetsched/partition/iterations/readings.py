"""How many iterations make one reading: as many as their noise demands."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hetsched.partition.iterations.iteration_totals import IterationTotals
from hetsched.partition.iterations.records import TimedIteration

MAX_ERROR = 0.1
"""Standard error of a reading's logarithm that is good enough. Arbitrary."""
MIN_REAL_REPORTS = 2
"""Reports that make a reading at least if times are measured: one may be an outlier."""
MAX_REPORTS = 64
"""Reports that make a reading at most."""


class ReadingBuffer:
    """Iterations with one split, until their mean is precise enough.

    On a quiet machine each report is a reading. Where other work interrupts the devices, single
    iterations take many times as long as others, and what matters is their mean.

    Parameters
    ----------
    is_exact : bool
        Times are modelled: the first report is neither cold nor too little.
    """

    def __init__(self, *, is_exact: bool) -> None:
        self._is_cold = not is_exact
        self._min_reports = 1 if is_exact else MIN_REAL_REPORTS
        self._totals = IterationTotals()
        self._held: list[TimedIteration] = []
        self._reports = 0

    def add(self, report: Sequence[TimedIteration]) -> Sequence[TimedIteration]:
        """Add a report of iterations with one split; return a reading, empty if there is none."""
        if self._is_cold:
            self._is_cold = False
            return ()
        rows = report[0].rows
        self._totals.add(rows, _mean_total(report))
        if self._held and self._held[0].rows != rows:
            self._held, self._reports = [], 0
        self._held += report
        self._reports += 1
        if self._reports < self._needed_reports():
            return ()
        reading, self._held, self._reports = self._held, [], 0
        return reading

    def _needed_reports(self) -> int:
        noise = self._totals.noise or 0.0
        return max(self._min_reports, min(MAX_REPORTS, math.ceil((noise / MAX_ERROR) ** 2)))


def _mean_total(report: Sequence[TimedIteration]) -> float:
    """Return the mean seconds of an iteration, with waits."""
    count = sum(each.count for each in report)
    return sum(
        each.count * max(t.compute + t.transfer + t.converge + t.wait for t in each.times if t)
        for each in report
    ) / max(1, count)
