"""Reports of iterations put together; evidence from them."""

from __future__ import annotations

import math

import pytest

from hetsched.engine.run.epochs import (
    MAX_SIZES,
    CompleteIteration,
    IterationLog,
    RowEvidence,
)
from hetsched.job import IterationSeconds
from hetsched.transport.device_messages import IterationRecord, IterationsDone

FAST, SLOW = IterationSeconds(1.0, 0.5, 2.0, 0.25), IterationSeconds(3.0)


def report(
    first: int, *means: IterationSeconds, rows: int = 4, counts: tuple[int, ...] = ()
) -> IterationsDone:
    records, last = [], first - 1
    for mean, count in zip(means, counts or (1,) * len(means), strict=True):
        last += count
        records.append(IterationRecord(last, count, mean.times(count), 1.0 / last, rows))
    return IterationsDone(1, tuple(records))


def complete(iteration: int, rows: int, seconds: float) -> CompleteIteration:
    return CompleteIteration(iteration, {"a": rows}, {"a": IterationSeconds(seconds)}, math.nan)


def test_an_iteration_is_complete_when_every_device_has_reported_it() -> None:
    log = IterationLog(("a", "b"))
    assert log.add("a", report(5, FAST, FAST)) == []

    (fifth,) = log.add("b", report(5, SLOW, rows=8))
    assert (fifth.iteration, fifth.rows, fifth.residual) == (5, {"a": 4, "b": 8}, 0.2)
    assert fifth.times == {"a": FAST, "b": SLOW}
    assert fifth.seconds == 3.75
    assert [each.iteration for each in log.add("b", report(6, SLOW))] == [6]


def test_records_of_several_iterations_are_complete_where_those_of_all_devices_end() -> None:
    log = IterationLog(("a", "b"))
    times = (IterationSeconds(0.001), IterationSeconds(0.001, wait=0.003))
    assert log.add("a", report(1000, *times, *times, counts=(4, 4, 4, 4))) == []

    complete = log.add("b", report(1000, *times, FAST, counts=(8, 6, 2)))

    assert [(each.iteration, each.count) for each in complete] == [(1007, 8), (1015, 8)]
    assert complete[0].times["a"].wait == pytest.approx(0.003 * 4 / 8)
    assert complete[0].times["b"].compute == pytest.approx(0.001)
    assert complete[1].times["b"].compute == pytest.approx((6 * 0.001 + 2 * 1.0) / 8)


def test_evidence_is_the_median_time_of_each_number_of_rows() -> None:
    evidence = RowEvidence()
    for iteration, seconds in enumerate([9.0, 1.0, 5.0, 2.0]):
        evidence.add(complete(iteration, 7, seconds))
    assert list(evidence.medians()) == [("a", 7, 2.0, None)], "the first iteration fills caches"


def test_evidence_of_a_device_that_copies_has_its_compute_time() -> None:
    evidence = RowEvidence()
    times = IterationSeconds(1.0, transfer=3.0, wait=9.0, converge=0.5)
    for iteration in range(2):
        evidence.add(CompleteIteration(iteration, {"a": 7}, {"a": times}, 0.0))
    assert list(evidence.medians()) == [("a", 7, 4.5, 1.5)]


def test_evidence_is_bounded() -> None:
    evidence = RowEvidence()
    for rows in range(1, 3 * MAX_SIZES):
        for _ in range(2):
            evidence.add(complete(1, rows, 1.0))
    assert len(list(evidence.medians())) == MAX_SIZES
