"""Iterative jobs on simulated devices, in virtual time, under the product's `IterationBalance`."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetsched.explain.recorder import received
from hetsched.explain.records import RowMove
from hetsched.job import IterationSeconds
from hetsched.models import Affine, Constant, SpeedFunction
from hetsched.partition import optimal
from hetsched.partition.iterations import IterationBalance, TimedIteration
from hetsched.simulate.curves import Paging

MIXTURES = 10
"""Intermediate slowdowns from which the search for the best fixed split starts."""


Slowdown = Callable[[int], Sequence[float]]
"""Iteration -> factor of each device's time."""


@dataclass(frozen=True)
class IterativeMachine:
    """Devices that compute iterations.

    `moving`: seconds a row, in the first iteration of a device with rows that were another one's.
    `noise`: standard deviation of the logarithm of each time.
    """

    compute: Sequence[SpeedFunction]
    slowdown: Slowdown | None = None
    moving: float = 0.0
    noise: float = 0.0

    def seconds(self, device: int, rows: int, iteration: int = 0) -> float:
        """Return the seconds of an iteration without noise."""
        if not rows:
            return 0.0
        factor = self.slowdown(iteration)[device] if self.slowdown else 1.0
        return factor * float(self.compute[device].time(rows))

    def run(
        self, iteration: int, rows: Sequence[int], gained: Sequence[int], draw: random.Random
    ) -> list[IterationSeconds]:
        """Return the times of an iteration for which devices got `gained` rows from others."""
        times = [
            self.seconds(device, count, iteration) * math.exp(draw.gauss(0, self.noise))
            + self.moving * gained[device]
            for device, count in enumerate(rows)
        ]
        return [IterationSeconds(each, wait=max(times) - each) for each in times]


@dataclass
class IterationTrace:
    """A run: the rows of each device and the seconds, with those of moving, by iteration."""

    rows: list[tuple[int, ...]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    moves: list[RowMove] = field(default_factory=list)

    @property
    def total(self) -> float:
        return sum(self.seconds)

    @property
    def moved(self) -> int:
        """Rows that changed their device."""
        pairs = zip(self.rows, self.rows[1:], strict=False)
        return sum(sum(received(before, after)) for before, after in pairs)

    @property
    def least_moved(self) -> int:
        """Rows that would have changed their device without a detour."""
        return sum(received(self.rows[0], self.rows[-1]))


def drive(
    balance: IterationBalance,
    machine: IterativeMachine,
    iterations: int,
    *,
    seed: int = 0,
) -> IterationTrace:
    """Run an iterative job with a new `balance`."""
    draw = random.Random(seed)
    trace = IterationTrace()
    for iteration in range(1, iterations + 1):
        rows = balance.rows
        previous = trace.rows[-1] if trace.rows else rows
        times = machine.run(iteration, rows, received(previous, rows), draw)
        trace.rows.append(rows)
        trace.seconds.append(max(each.busy for each in times))
        move = balance.tell([TimedIteration(iteration, rows, times)], iterations - iteration)
        if move is not None:
            trace.moves.append(move)
    return trace


@dataclass(frozen=True)
class _SlowedCurve:
    """A device's iteration, slowed down by `factor`."""

    machine: IterativeMachine
    device: int
    factor: float

    def time(self, x: Any, /) -> Any:
        return self.factor * self.machine.compute[self.device].time(x)

    def speed(self, x: Any, /) -> Any:
        return x / self.time(x)


def best_fixed(machine: IterativeMachine, rows: int, iterations: int) -> tuple[int, ...]:
    """Search for the split that takes the least time for all iterations, without noise.

    Exact if no device changes its speed. Otherwise from the optima for `MIXTURES` factors between
    the first and the last, the best one, improved by moving ever fewer rows between two devices.
    """
    devices = range(len(machine.compute))
    start = machine.slowdown(1) if machine.slowdown else [1.0] * len(devices)
    end = machine.slowdown(iterations) if machine.slowdown else start

    def split(part: float) -> tuple[int, ...]:
        curves = [
            _SlowedCurve(machine, d, start[d] ** (1 - part) * end[d] ** part) for d in devices
        ]
        return optimal(curves, rows).shares

    if start == end:
        return split(0.0)

    def total(shares: tuple[int, ...]) -> float:
        return fixed_total(machine, shares, iterations)

    best = min((split(k / MIXTURES) for k in range(MIXTURES + 1)), key=total)
    step = max(1, rows // 16)
    while step:
        others = [
            tuple(n + step * ((i == to) - (i == of)) for i, n in enumerate(best))
            for of, to in itertools.permutations(devices, 2)
            if best[of] >= step
        ]
        nearest = min(others, key=total)
        if total(nearest) < total(best):
            best = nearest
        else:
            step //= 2
    return best


def fixed_total(machine: IterativeMachine, rows: Sequence[int], iterations: int) -> float:
    """Return the seconds of all iterations with these rows, without noise."""
    if machine.slowdown is None:
        return iterations * max(machine.seconds(d, n) for d, n in enumerate(rows))
    return sum(
        max(machine.seconds(d, n, k) for d, n in enumerate(rows)) for k in range(1, iterations + 1)
    )


# ---- the tests

several_cores = pytest.mark.parametrize("cores", [1, pytest.param(2, marks=pytest.mark.stress), 4])
several_ratios = pytest.mark.parametrize(
    "ratio",
    [1 / 3, *(pytest.param(ratio, marks=pytest.mark.stress) for ratio in (1.0, 3.0)), 10.0],
)
"""The speed of a device over that of a core."""

ROWS = 4000
ITERATIONS = 100
CORE = Constant(1000.0)


STEEP, GENTLE = (4.0, 0.05), (4.0, 0.5)
"""Cliffs: how much slower, over which fraction of the capacity."""


def with_gpu(cores: int, ratio: float, cliff: tuple[float, float] | None) -> IterativeMachine:
    """Cores and a device of `ratio` times their speed that holds 4/5 of its balanced share."""
    if cliff is None:
        return IterativeMachine([*[CORE] * cores, Constant(1000.0 * ratio)])
    capacity = 0.8 * ROWS * ratio / (cores + ratio)
    return IterativeMachine([*[CORE] * cores, Paging(Constant(1000.0 * ratio), capacity, *cliff)])


def memory_of(curve: SpeedFunction) -> int | None:
    return int(curve.capacity) if isinstance(curve, Paging) else None


def play(
    machine: IterativeMachine,
    method: str = "auto",
    seed: int = 0,
    *,
    knows_memory: bool = False,
) -> IterationTrace:
    capacities = [
        ROWS if curve is CORE else memory_of(curve) if knows_memory else None
        for curve in machine.compute
    ]
    balance = IterationBalance(ROWS, len(capacities), method, capacities=capacities)
    return drive(balance, machine, ITERATIONS, seed=seed)


def loss(machine: IterativeMachine, trace: IterationTrace) -> float:
    """The time over that of the best fixed split, both without noise."""
    quiet = replace(machine, noise=0.0)
    best = fixed_total(quiet, best_fixed(quiet, ROWS, ITERATIONS), ITERATIONS)
    split = [fixed_total(quiet_at(quiet, k), rows, 1) for k, rows in enumerate(trace.rows, 1)]
    return sum(split) / best


def iterations_to_balance(machine: IterativeMachine, trace: IterationTrace) -> int:
    """Those after the device was measured on both sides of its cliff, until balanced for good."""
    memory = memory_of(machine.compute[-1])
    assert memory is not None
    is_beyond = [rows[-1] > memory for rows in trace.rows]
    evidence = max(is_beyond.index(True), is_beyond.index(False))
    most = 1.05 * fixed_total(machine, best_fixed(machine, ROWS, 1), 1)
    unbalanced = [k for k, rows in enumerate(trace.rows) if fixed_total(machine, rows, 1) > most]
    return max(0, unbalanced[-1] - evidence)


def quiet_at(machine: IterativeMachine, iteration: int) -> IterativeMachine:
    """The machine as it is in one iteration."""
    slowdown = machine.slowdown
    return replace(machine, slowdown=slowdown and (lambda _: slowdown(iteration)))


def half_as_fast(iteration: int) -> list[float]:
    return [2.0 if iteration >= 40 else 1.0, 1.0, 1.0]


@several_cores
@several_ratios
def test_a_device_of_another_speed_is_balanced_within_four_iterations(
    cores: int, ratio: float
) -> None:
    machine = with_gpu(cores, ratio, None)

    trace = play(machine)

    assert trace.rows[4] == trace.rows[-1]
    assert trace.seconds[-1] <= 1.005 * fixed_total(machine, best_fixed(machine, ROWS, 1), 1)
    assert loss(machine, trace) <= 1.07
    assert trace.moved == trace.least_moved


def test_a_device_that_earlier_jobs_found_too_slow_for_any_row_stays_without() -> None:
    machine = IterativeMachine([CORE, CORE, Affine(10.0, 1e-3)])
    balance = IterationBalance(ROWS, 3, models=machine.compute)
    assert {rows[2] for rows in drive(balance, machine, ITERATIONS).rows} == {0}


def test_a_device_that_one_wrong_time_excluded_comes_back_in_one_iteration() -> None:
    machine = IterativeMachine([CORE] * 3)
    balance = IterationBalance(ROWS, 3, models=[CORE, CORE, Affine(2.5, 1.0)])
    rows = drive(balance, machine, ITERATIONS).rows
    assert [shares[2] for shares in rows[:2]] == [0, 1]
    assert rows[20][2] == pytest.approx(ROWS / 3, rel=0.1)


def test_few_rows_are_shared_by_the_models_of_many_devices() -> None:
    machine = IterativeMachine([CORE] * 7)
    balance = IterationBalance(2, 7, models=[CORE] * 7)
    assert all(sum(rows) == 2 for rows in drive(balance, machine, ITERATIONS).rows)


def test_a_core_that_becomes_half_as_fast_is_balanced_after_four_iterations() -> None:
    machine = IterativeMachine([CORE] * 3, slowdown=half_as_fast)

    trace = play(machine)

    assert trace.rows[43] == trace.rows[-1] == (800, 1600, 1600)
    assert loss(machine, trace) <= 1.1


@pytest.mark.parametrize("cliff", [STEEP, GENTLE])
@several_cores
@several_ratios
def test_a_cliff_that_nobody_knows_of_costs_little(
    ratio: float, cores: int, cliff: tuple[float, float]
) -> None:
    machine = with_gpu(cores, ratio, cliff)

    trace = play(machine)

    assert loss(machine, trace) <= 1.11
    assert iterations_to_balance(machine, trace) <= 7


@pytest.mark.parametrize("cliff", [STEEP, GENTLE])
@several_cores
@several_ratios
def test_the_known_size_of_a_memory_spares_the_fall(
    ratio: float, cores: int, cliff: tuple[float, float]
) -> None:
    machine = with_gpu(cores, ratio, cliff)
    best = best_fixed(machine, ROWS, ITERATIONS)

    trace = play(machine, knows_memory=True)

    assert loss(machine, trace) <= 1.04
    assert max(trace.seconds[4:]) <= 1.02 * fixed_total(machine, best, 1)
    assert trace.moved <= sum(received(trace.rows[0], best)) + ROWS / 10


@pytest.mark.stress
@pytest.mark.parametrize("first", [100, 200])
def test_noise_costs_seven_per_cent_in_the_mean(first: int) -> None:
    cases = [
        (with_gpu(cores, ratio, cliff), knows_memory)
        for cores in (1, 2, 4)
        for ratio in (1 / 3, 1.0, 3.0, 10.0)
        for cliff in (None, STEEP, GENTLE)
        for knows_memory in ((False, True) if cliff else (False,))
    ]
    cases.append((IterativeMachine([CORE] * 3, slowdown=half_as_fast), False))
    losses = [
        loss(machine, play(replace(machine, noise=0.02), seed=seed, knows_memory=knows_memory))
        for machine, knows_memory in cases
        for seed in range(first, first + 5)
    ]

    assert sum(losses) / len(losses) <= 1.07


def test_rows_beyond_a_memory_that_cost_nothing_are_all_taken() -> None:
    machine = with_gpu(4, 3.0, None)
    capacities = [*[ROWS] * 4, 1371]

    balance = IterationBalance(ROWS, 5, capacities=capacities)
    trace = drive(balance, machine, ITERATIONS)

    assert trace.rows[-1][-1] == pytest.approx(best_fixed(machine, ROWS, 1)[-1], abs=1)
    assert loss(machine, trace) <= 1.05


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cliff", [None, STEEP])
def test_noise_does_not_lead_over_the_cliff_again(
    cliff: tuple[float, float] | None, seed: int
) -> None:
    machine = replace(with_gpu(2, 10.0, cliff), noise=0.02)

    assert loss(machine, play(machine, seed=seed)) <= 1.1


@pytest.mark.parametrize(
    "machine",
    [
        IterativeMachine([CORE] * 4),
        with_gpu(2, 3.0, None),
        with_gpu(2, 3.0, STEEP),
    ],
)
@given(
    wild=st.integers(1, 60),
    device=st.sampled_from([0, -1]),
    factor=st.floats(20, 1000),
    knows_memory=st.booleans(),
)
@settings(max_examples=settings().max_examples // 5)
def test_one_wild_iteration_costs_itself_what_it_would_have_shown_and_little_more(
    machine: IterativeMachine, wild: int, device: int, factor: float, knows_memory: bool
) -> None:
    def hiccup(iteration: int) -> list[float]:
        factors = [1.0] * len(machine.compute)
        factors[device] = factor if iteration == wild else 1.0
        return factors

    with_it, without = (
        play(each, knows_memory=knows_memory)
        for each in (replace(machine, slowdown=hiccup), machine)
    )

    def quiet(rows: tuple[int, ...]) -> float:
        return fixed_total(machine, rows, 1)

    lost = sum(map(quiet, with_it.rows)) - without.total
    assert lost <= quiet(with_it.rows[wild - 1]) + 0.02 * without.total


@pytest.mark.parametrize("method", ["auto", "functional", "constant", "imbalance-factor"])
def test_what_is_balanced_does_not_move(method: str) -> None:
    assert play(IterativeMachine([CORE] * 4), method).moved == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_core_that_slows_down_is_noticed_in_noise(seed: int) -> None:
    machine = IterativeMachine([CORE] * 3, slowdown=half_as_fast, noise=0.02)

    trace = play(machine, seed=seed)

    assert trace.rows[43][0] == pytest.approx(800, rel=0.06)
    assert loss(machine, trace) <= 1.1
    assert trace.moved <= 1.2 * trace.least_moved


def test_cost_of_moving_is_learnt_and_weighed() -> None:
    def often(iteration: int) -> list[float]:
        return [2.0 if iteration // 6 % 2 else 1.0, 1.0]

    cheap = IterativeMachine([CORE] * 2, slowdown=often)
    costly = IterativeMachine([CORE] * 2, slowdown=often, moving=0.5)

    assert len(play(costly).moves) < len(play(cheap).moves)
