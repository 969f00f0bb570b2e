"""Reports of iterations: what they have records of."""

from __future__ import annotations

from hetsched.device_process.epochs import DETAILED_ITERATIONS, IterationReports
from hetsched.job import IterationSeconds
from hetsched.transport.device_messages import IterationRecord, IterationsDone

TIMES = IterationSeconds(4.0, 2.0, 1.0, 0.5)


def reported(first: int, *, count: int, split_at: int) -> list[IterationRecord]:
    sent: list[IterationsDone] = []
    reports = IterationReports(1, sent.append)
    for iteration in range(first, first + count):
        if iteration == split_at:
            reports.begin_split()
        reports.add(iteration, TIMES, 1.0 / iteration, 7)
    reports.flush()
    reports.flush()
    (done,) = sent
    return list(done.records)


def test_the_first_iterations_of_a_job_have_records_of_their_own() -> None:
    records = reported(1, count=5, split_at=3)
    assert [(record.last, record.count) for record in records] == [(n, 1) for n in range(1, 6)]


def test_later_ones_share_a_record_but_for_the_first_one_of_a_split() -> None:
    first = DETAILED_ITERATIONS
    records = reported(first, count=10, split_at=first + 5)

    assert [record.count for record in records] == [1, 4, 1, 4]
    last = records[-1]
    assert (last.last, last.seconds, last.residual) == (first + 9, TIMES.times(4), 1 / last.last)
