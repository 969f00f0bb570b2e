"""Reports of iterations: their records, and how often they are sent. With a clock of the test."""

from __future__ import annotations

from hetsched.device_process.epochs import IterationReports
from hetsched.job import IterationSeconds
from hetsched.transport.device_messages import IterationsDone


class Bench:
    """Reports of iterations that take `seconds` each."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[IterationsDone] = []
        self.reports = IterationReports(1, self.sent.append, lambda: self.now)
        self.iteration = 0

    def iterate(self, count: int, seconds: float) -> None:
        for _ in range(count):
            self.now += seconds
            self.iteration += 1
            times = IterationSeconds(seconds, 0.5 * seconds, 0.25 * seconds, 0.125 * seconds)
            self.reports.add(self.iteration, times, 1.0 / self.iteration, 7)

    def skip(self, iterations: int) -> None:
        """Begin an epoch after these iterations."""
        self.iteration = iterations
        self.iterate(2, 1.0)  # the first ones are reported each
        self.sent.clear()

    @property
    def counts(self) -> list[int]:
        return [record.count for done in self.sent for record in done.records]


def test_short_ones_share_records_that_end_where_those_of_other_devices_may_end() -> None:
    bench = Bench()
    bench.skip(4095)
    bench.iterate(4000, 1e-4)
    records = bench.sent[-1].records

    size = max(record.count for record in records)
    assert size > 1 and size & (size - 1) == 0
    assert all((record.last + 1) % size == 0 for record in records[:-1])


def test_a_record_has_the_times_together_and_the_last_residual() -> None:
    bench = Bench()
    bench.skip(4095)
    bench.iterate(4000, 1e-4)

    for record in bench.sent[-1].records:
        assert round(record.seconds.compute / record.count, 9) == 1e-4
        assert round(record.seconds.converge / record.count, 9) == 0.125e-4
        assert (record.residual, record.rows) == (1.0 / record.last, 7)


def test_reports_become_rarer_in_a_long_epoch() -> None:
    bench = Bench()
    bench.iterate(100, 0.01)
    early = len(bench.sent)
    bench.iterate(900, 0.01)
    bench.sent.clear()
    bench.iterate(100, 0.01)
    assert (early, len(bench.sent)) == (20, 4)
