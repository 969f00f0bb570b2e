"""Iterative jobs on simulated devices: how soon they are balanced, and what that costs."""

import pytest

from hetsched.models import Constant
from hetsched.partition.iterations import IterationBalance
from hetsched.simulate.iterations import (
    IterationTrace,
    IterativeMachine,
    best_fixed,
    drive,
    fixed_total,
)

ROWS = 4000
ITERATIONS = 100
CORE = Constant(1000.0)


def play(machine: IterativeMachine, method: str = "auto", seed: int = 0) -> IterationTrace:
    balance = IterationBalance(ROWS, len(machine.compute), method)
    return drive(balance, machine, ITERATIONS, seed=seed)


def loss(machine: IterativeMachine, trace: IterationTrace) -> float:
    """The time over that of the best fixed split."""
    best = fixed_total(machine, best_fixed(machine, ROWS, ITERATIONS), ITERATIONS)
    return trace.total / best


def half_as_fast(iteration: int) -> list[float]:
    return [2.0 if iteration >= 40 else 1.0, 1.0, 1.0]


@pytest.mark.parametrize("cores", [1, 2, 4])
@pytest.mark.parametrize("ratio", [1 / 3, 1.0, 3.0, 10.0])
def test_a_device_of_another_speed_is_balanced_after_one_iteration(
    cores: int, ratio: float
) -> None:
    machine = IterativeMachine([*[CORE] * cores, Constant(1000.0 * ratio)])

    trace = play(machine)

    assert trace.rows[1] == trace.rows[-1]
    assert trace.seconds[-1] <= 1.005 * fixed_total(machine, best_fixed(machine, ROWS, 1), 1)
    assert loss(machine, trace) <= 1.1
    assert trace.moved == trace.least_moved


def test_a_core_that_becomes_half_as_fast_is_balanced_after_four_iterations() -> None:
    machine = IterativeMachine([CORE] * 3, slowdown=half_as_fast)

    trace = play(machine)

    assert trace.rows[43] == trace.rows[-1] == (800, 1600, 1600)
    assert loss(machine, trace) <= 1.1


def test_cost_of_moving_is_learnt_and_weighed() -> None:
    def often(iteration: int) -> list[float]:
        return [2.0 if iteration // 6 % 2 else 1.0, 1.0]

    cheap = IterativeMachine([CORE] * 2, slowdown=often)
    costly = IterativeMachine([CORE] * 2, slowdown=often, moving=0.5)

    assert len(play(costly).moves) < len(play(cheap).moves)
