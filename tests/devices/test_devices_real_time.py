"""The real clock of emulated devices: real work waits for its dependencies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from hetsched.devices.accelerator.engines import Operation
from hetsched.devices.accelerator.simulated import RealTime

MOMENT = 0.05
"""Seconds: more than a thread that may run needs to begin, as a rule."""


@pytest.fixture
def real_time() -> Iterator[RealTime]:
    with closing(RealTime(2, (1.0, 1.0))) as real_time:
        yield real_time


def test_work_begins_when_the_work_before_it_is_done(real_time: RealTime) -> None:
    began, results = threading.Event(), list[bool]()
    first = Operation("h2d", 0.0, lambda: results.append(began.wait(MOMENT)))
    second = Operation("compute", 0.0, began.set, [first])

    real_time.issue(first)
    real_time.issue(second)
    real_time.run_until_end(second)

    assert results == [False]


def test_waiting_lasts_until_the_work_is_done(real_time: RealTime) -> None:
    done, go = list[int](), threading.Event()
    operation = Operation("compute", 0.0, lambda: done.append(go.wait(60)))

    real_time.issue(operation)
    threading.Timer(MOMENT, go.set).start()
    real_time.run_until_end(operation)

    assert done == [True]
    assert operation.ended is not None
