import random
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from balancer_machines import Times, at_speeds, run_phases

from hetsched.partition import Balancer, Phase, geometric


def constant(seconds: float, devices: int) -> Times:
    return [lambda units: seconds] * devices


def play(balancer: Balancer, compute: Times, transfer: Times, max_runs: int = 2000) -> list[float]:
    """Seconds of each iteration until the loop ends."""
    seconds: list[float] = []
    while not balancer.reason and len(seconds) < max_runs:
        seconds.append(run_phases(balancer, compute, transfer))
    return seconds


def machine(seed: int) -> tuple[int, Times, Times]:
    """Load, compute and transfer times of 4 to 64 devices, transfers of three kinds."""
    draw = random.Random(seed)
    devices = draw.randint(4, 64)
    load = devices * draw.randint(50, 2000)
    speeds = [10 ** draw.uniform(0, 1.2) for _ in range(devices)]
    even = load / sum(speeds)
    transfer: Times = [
        constant(0, devices),
        constant(even * draw.uniform(0, 0.3), devices),
        [_affine(even * 0.02, speed * draw.uniform(2, 10)) for speed in speeds],
    ][seed % 3]
    return load, at_speeds(*speeds), transfer


def _affine(gap: float, speed: float) -> Callable[[int], float]:
    return lambda units: gap + units / speed


def optimum(load: int, compute: Times, transfer: Times) -> float:
    """The least time in which all devices together finish the load, units not being whole."""
    both = [[c(x) + t(x) for c, t in zip(compute, transfer, strict=True)] for x in (1, 2)]
    slope = np.subtract(both[1], both[0])
    gap = np.subtract(both[0], slope)
    low, high = 0.0, float((gap + slope * load).max())
    for _ in range(100):
        middle = (low + high) / 2
        enough = np.maximum(middle - gap, 0).dot(1 / slope) >= load
        low, high = (low, middle) if enough else (middle, high)
    return high


@pytest.mark.parametrize("seed", range(9))
def test_no_repartition_makes_the_iteration_longer_and_the_end_is_near_the_optimum(
    seed: int,
) -> None:
    load, compute, transfer = machine(seed)
    balancer = Balancer(load, len(compute), "imbalance-factor")

    seconds = play(balancer, compute, transfer)

    assert balancer.reason == "balanced"
    assert all(after <= before * (1 + 1e-9) for before, after in pairwise(seconds))
    assert seconds[-1] <= 1.12 * optimum(load, compute, transfer)


@pytest.mark.parametrize("seed", range(9))
def test_a_global_partition_of_the_same_history_needs_three_repartitions_at_most(
    seed: int,
) -> None:
    load, compute, transfer = machine(seed)
    balancer = Balancer(load, len(compute), "imbalance-factor", split=geometric)

    seconds = play(balancer, compute, transfer)

    assert len(seconds) <= 4
    assert seconds[-1] <= 1.12 * optimum(load, compute, transfer)


@pytest.mark.parametrize("seed", range(3))
def test_groups_are_balanced_inside_then_among_each_other(seed: int) -> None:
    load, compute, transfer = machine(seed)
    devices = len(compute)
    groups = [device * 3 // devices for device in range(devices)]
    balancer = Balancer(load, devices, "imbalance-factor", groups=groups)

    seconds = play(balancer, compute, transfer)

    assert balancer.reason == "balanced"
    assert seconds[-1] <= 1.12 * optimum(load, compute, transfer)


def test_within_balanced_groups_only_groups_trade() -> None:
    balancer = Balancer(400, 4, "imbalance-factor", groups=[[0, 1], [2, 3]])

    run_phases(balancer, at_speeds(1, 1, 3, 3), constant(0, 4))

    assert balancer.ask().shares == (50, 50, 150, 150)


def test_neighbours_pass_load_on_to_the_next() -> None:
    balancer = Balancer(600, 4, "imbalance-factor", groups=[[0, 1], [1, 2], [2, 3]])

    seconds = play(balancer, at_speeds(1, 1, 1, 3), constant(0, 4))

    assert balancer.reason == "balanced"
    assert len(seconds) > 3
    assert balancer.ask().shares == pytest.approx((100, 100, 100, 300), abs=15)


def test_waits_that_all_have_in_common_are_told_apart() -> None:
    balancer = Balancer(100, 2, "imbalance-factor")
    balancer.ask()
    balancer.tell([{Phase.COMPUTE: 1.0, Phase.WAIT: 3.0}, {Phase.COMPUTE: 1.1, Phase.WAIT: 2.9}])

    assert balancer.reason == "communication-bound"
    assert balancer.balanced


def test_a_balance_is_given_up_after_two_bad_iterations() -> None:
    balancer, still = Balancer(300, 2, "imbalance-factor"), constant(0, 2)
    play(balancer, at_speeds(1, 2), still)
    before = balancer.ask().shares

    run_phases(balancer, at_speeds(2, 1), still)
    once = balancer.ask().shares, balancer.reason
    run_phases(balancer, at_speeds(2, 1), still)

    assert once == (before, "balanced")
    assert balancer.ask().shares == pytest.approx((200, 100), abs=2)


def test_a_history_of_earlier_runs_gives_the_first_split() -> None:
    first = Balancer(1000, 2, "imbalance-factor")
    play(first, at_speeds(1, 3), constant(0, 2))

    again = Balancer(1000, 2, "imbalance-factor", models=first.models)

    assert again.ask().shares == (250, 750)
