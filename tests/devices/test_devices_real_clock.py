"""The real clock of emulated devices: real work waits for its dependencies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from hetsched.devices.emulated.real_clock import RealClock
from hetsched.devices.emulated.streams import Operation
from hetsched.devices.emulated.virtual_clock import Work

MOMENT = 0.05
"""Seconds: more than a thread that may run needs to begin, as a rule."""


@pytest.fixture
def clock() -> Iterator[RealClock]:
    with closing(RealClock(2, (1.0, 1.0))) as clock:
        yield clock


def test_work_begins_when_the_work_before_it_is_done(clock: RealClock) -> None:
    began, results = threading.Event(), list[bool]()
    first = Operation("h2d", 0.0)
    second = Operation("compute", 0.0, [first])

    clock.issue(first, Work((), (), lambda sources: results.append(began.wait(MOMENT))))
    clock.issue(second, Work((), (), lambda sources: began.set()))
    clock.wait(second)

    assert results == [False]


def test_waiting_lasts_until_the_work_is_done(clock: RealClock) -> None:
    done, go = list[int](), threading.Event()
    operation = Operation("compute", 0.0)

    clock.issue(operation, Work((), (), lambda sources: done.append(go.wait(60))))
    threading.Timer(MOMENT, go.set).start()
    clock.wait(operation)

    assert done == [True]
    assert operation.ended is not None
