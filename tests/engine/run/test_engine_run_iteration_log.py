"""Reports of iterations put together; evidence from them."""

from __future__ import annotations

import math

import pytest

from hetsched.engine.run.epochs import (
    CompleteIteration,
    IterationLog,
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
