"""Driving a Balancer with curves: what is recorded of the loop."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hetsched.models import Constant
from hetsched.partition import Balancer, Phase
from hetsched.partition.phases import DeviceTime
from hetsched.simulate.runs import LoopRun, LoopTrace, busy_seconds, drive, exact_times


def trace_of(*runs: LoopRun) -> LoopTrace:
    return LoopTrace(runs, runs[-1], False, "")


SLOW_FIRST = trace_of(
    LoopRun((50, 50), (5.0, 1.0)), LoopRun((20, 80), (2.0, 1.6)), LoopRun((18, 82), (1.8, 1.64))
)


def test_a_loop_ends_when_the_budget_does() -> None:
    trace = drive(Balancer(300, 2), exact_times([Constant(1.0), Constant(2.0)]), 1)

    assert len(trace.runs) == 1
    assert (trace.balanced, trace.reason) == (False, "")


def test_runs_near_a_time_and_units_moved_are_counted() -> None:
    assert SLOW_FIRST.first_within(2.0) == 2
    assert SLOW_FIRST.first_within(1.0) is None
    assert SLOW_FIRST.moved_units() == [30, 2]
    assert SLOW_FIRST.best.shares == (18, 82)


def test_points_are_sizes_that_one_machine_was_measured_at() -> None:
    again = LoopRun((50, 50), (5.0, 1.0))
    idle = LoopRun((0, 100), (0.0, 2.0))

    assert trace_of(again, again).points == 1
    assert trace_of(again, idle).points == 2
    assert trace_of(idle).points == 1


def test_machines_without_a_share_dont_count_for_the_spread() -> None:
    assert LoopRun((0, 4, 6), (0.0, 2.0, 3.0)).spread == pytest.approx(0.5)


def test_waiting_is_no_work() -> None:
    times: Sequence[DeviceTime] = [
        2.5,
        None,
        {Phase.COMPUTE: 1.0, Phase.TRANSFER: 0.5, Phase.WAIT: 3.0},
    ]

    assert [busy_seconds(time) for time in times] == [2.5, 0.0, 1.5]
