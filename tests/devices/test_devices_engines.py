"""When the operations of an emulated device start and end, in computed and in real time."""

from __future__ import annotations

import math
import threading
from contextlib import closing

import pytest

from hetsched.devices.accelerator.engines import Engines, Operation
from hetsched.devices.accelerator.simulated import RealTime

MOMENT = 0.05
"""Seconds: more than a thread that may run needs to begin, as a rule."""


def spans(
    times: list[tuple[float, ...]], duplex: tuple[float, float], tick: float = math.inf
) -> list[list[tuple[float, float]]]:
    """Start and end of copy in, compute and copy out for each of `times`, on two engines."""
    engines, rows = Engines(2, duplex), []
    for h2d, compute, d2h in times:
        copy_in = Operation("h2d", h2d)
        work = Operation("compute", compute, after=[copy_in])
        rows.append([copy_in, work, Operation("d2h", d2h, after=[work])])
        for operation in rows[-1]:
            engines.issue(operation)
    now = tick
    while engines.next_time() is not None:
        list(engines.advance(now))
        now += tick
    return [[(op.started or 0.0, op.ended or 0.0) for op in row] for row in rows]


def test_advancing_in_steps_changes_nothing() -> None:
    times = [(1.0, 2.0, 1.5), (2.0, 0.5, 1.0), (1.0, 1.0, 3.0)]

    once, stepped = spans(times, (0.6, 0.7)), spans(times, (0.6, 0.7), tick=0.1)

    assert [span for row in stepped for span in row] == [
        pytest.approx(span) for row in once for span in row
    ]


def test_an_operation_whose_work_is_not_done_is_late() -> None:
    engines = Engines(2, (1.0, 1.0))
    operation = Operation("compute", 1.0, is_ready=False)
    engines.issue(operation)
    list(engines.advance(2.0))

    engines.done(operation, 3.0)
    list(engines.advance(4.0))

    assert operation.is_late
    assert (operation.started, operation.ended) == (0.0, 3.0)


def test_in_real_time_work_waits_for_the_work_before_it_and_the_host_for_its_end() -> None:
    began, results = threading.Event(), list[bool]()
    first = Operation("h2d", 0.0, lambda: results.append(began.wait(MOMENT)))
    second = Operation("compute", 0.0, began.set, [first])
    with closing(RealTime(2, (1.0, 1.0))) as real_time:
        real_time.issue(first)
        real_time.issue(second)
        real_time.run_until_end(second)

    assert results == [False]
    assert second.ended is not None
