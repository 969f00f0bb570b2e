"""Readings of memory that other processes use too: which plans wait for them, and how long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.engine.processes import memory_readings
from hetsched.engine.processes.memory_readings import (
    MAX_AGE_SECONDS,
    MAX_SHORTAGE_BYTES,
    MemoryReadings,
    steady_memory,
)
from hetsched.transport.timers import Timer, TimerQueue

MIB = 1 << 20


class Bench:
    """Readings on a clock and a loop that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.asked: list[str] = []
        self.planned = 0
        self.timers: list[Timer] = []
        monkeypatch.setattr(memory_readings.time, "monotonic", lambda: self.now)
        self.readings = MemoryReadings(cast(Any, self), self.asked.append)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + seconds, callback, TimerQueue()))
        return self.timers[-1]

    def plan(self, *devices: str) -> None:
        self.readings.refresh(devices, self.count)

    def count(self) -> None:
        self.planned += 1


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_plan_waits_for_readings_that_are_old(bench: Bench) -> None:
    bench.readings.on_reading("gpu0")
    bench.plan("gpu0")
    assert (bench.planned, bench.asked) == (1, [])

    bench.now += MAX_AGE_SECONDS + 0.1
    bench.plan("gpu0", "gpu1")
    assert (bench.planned, sorted(bench.asked)) == (1, ["gpu0", "gpu1"])

    bench.readings.on_reading("gpu0")
    assert bench.planned == 1
    bench.readings.on_reading("gpu1")
    assert bench.planned == 2
    assert not bench.timers[-1].is_pending


def test_a_device_that_does_not_answer_delays_one_plan_only(bench: Bench) -> None:
    bench.plan("gpu0")
    (timer,) = bench.timers
    assert timer.callback is not None

    bench.now = timer.due + 0.01
    timer.callback()
    bench.plan("gpu0")

    assert (bench.planned, bench.asked) == (2, ["gpu0"])


def test_two_plans_wait_for_one_answer(bench: Bench) -> None:
    bench.plan("gpu0")
    bench.plan("gpu0")

    bench.readings.on_reading("gpu0")

    assert (bench.planned, bench.asked) == (2, ["gpu0"])


def test_no_plan_waits_for_a_process_that_has_ended(bench: Bench) -> None:
    bench.plan("gpu0")

    bench.readings.on_end(["gpu0"])

    assert bench.planned == 1


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_the_memory_to_plan_with_is_never_much_more_than_there_is(
    previous: int, reading: int
) -> None:
    steady = steady_memory(previous, reading)

    assert steady <= reading + MAX_SHORTAGE_BYTES
    assert steady in (previous, reading)


def test_small_differences_change_nothing() -> None:
    assert steady_memory(1000 * MIB, 1040 * MIB) == 1000 * MIB
    assert steady_memory(1000 * MIB, 950 * MIB) == 1000 * MIB
    assert steady_memory(1000 * MIB, 900 * MIB) == 900 * MIB
    assert steady_memory(1000 * MIB, 1100 * MIB) == 1100 * MIB
