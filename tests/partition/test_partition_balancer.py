import math
import random
from dataclasses import dataclass

import pytest
from balancer_machines import METHODS, Times, at_speeds, clarke, makespan, play, run
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError
from hetsched.models import Constant, PiecewiseLinear
from hetsched.partition import Balancer, Distribution, constant, optimal


def test_two_devices_are_balanced_in_two_runs() -> None:
    balancer = Balancer(300, 2)

    assert play(balancer, at_speeds(1, 2)) == [(150, 150), (100, 200)]
    assert balancer.ask() == Distribution((100, 200), 100.0, 0.0, "balanced")
    assert (balancer.balanced, balancer.reason, balancer.iterations) == (True, "balanced", 2)


def test_coming_back_to_a_split_ends_the_loop_at_the_best() -> None:
    balancer, times = Balancer(11000, 4, "constant"), clarke(11000)

    splits = play(balancer, times)

    assert balancer.reason == "no further gain: seen before"
    assert not balancer.balanced
    best = min(splits, key=lambda split: makespan(times, split))
    assert balancer.ask().shares == best
    assert play(balancer, times, 5) == [best]


def test_a_gain_within_the_tolerance_ends_the_loop() -> None:
    balancer = Balancer(4, 3, tolerance=0.1)

    play(balancer, at_speeds(1, 1, 1))

    assert balancer.ask().shares == (2, 1, 1)
    assert balancer.reason == "no further gain"
    assert balancer.balanced, "they differ by a unit"


def test_a_move_that_costs_more_than_it_gains_is_not_made() -> None:
    balancer = Balancer(300, 2, migration_cost=lambda old, new: 120.0)
    times = at_speeds(1, 2)

    assert play(balancer, times) == [(150, 150)]
    assert balancer.reason == "not worth moving"
    assert [run(balancer, times) for _ in range(3)] == [(150, 150), (150, 150), (100, 200)]


def test_a_search_without_an_end_is_ended() -> None:
    balancer, times = Balancer(11000, 4, "constant", stop_when_seen=False), clarke(11000)
    runs = 0
    while not balancer.reason:
        run(balancer, times)
        runs += 1

    assert (runs, balancer.reason) == (121, "budget")
    assert run(balancer, times) == run(balancer, times)


@pytest.mark.parametrize("method", METHODS)
def test_a_lost_device_gets_nothing_more(method: str) -> None:
    balancer, times = Balancer(600, 3, method), at_speeds(1, 2, 3)
    first, second, _ = balancer.ask().shares
    balancer.tell([first / 1, second / 2, None])

    splits = play(balancer, [*times[:2], lambda units: 0.0])

    assert all(shares[2] == 0 and sum(shares) == 600 for shares in splits)
    assert balancer.reason == "balanced"
    assert splits[-1][1] == pytest.approx(400, abs=20)


@pytest.mark.parametrize("method", METHODS)
def test_a_newcomer_is_measured_and_balanced(method: str) -> None:
    balancer = Balancer(1200, 2, method)
    play(balancer, at_speeds(1, 2))

    assert balancer.join() == 2
    assert balancer.reason == ""
    splits = play(balancer, at_speeds(1, 2, 3))

    assert splits[0][2] == 400
    assert splits[-1] == pytest.approx((200, 400, 600), abs=40)
    assert balancer.balanced


def test_a_run_that_is_out_when_a_device_joins_is_told_of_as_it_was() -> None:
    balancer = Balancer(100, 2)
    balancer.ask()
    balancer.join()

    balancer.tell([50.0, 50.0])

    assert balancer.reason == ""
    assert balancer.ask().shares[2] == 34


def test_when_the_devices_left_have_no_room_asking_says_so_until_one_joins() -> None:
    balancer = Balancer(100, 2, limits=[30, None])
    balancer.ask()
    balancer.tell([30.0, None])

    with pytest.raises(DataError, match="70 more than the devices' limits allow"):
        balancer.ask()
    balancer.join()
    assert balancer.ask().shares == (30, 0, 70)


def test_without_any_device_left_asking_says_so() -> None:
    balancer = Balancer(100, 2)
    balancer.ask()
    balancer.tell([None, None])

    with pytest.raises(DataError, match="all 2 devices are lost"):
        balancer.ask()


def test_models_that_are_given_split_the_first_run() -> None:
    models = [Constant(1.0), Constant(2.0), PiecewiseLinear([(10, 10.0)])]
    balancer = Balancer(400, 3, models=models)

    assert balancer.ask().shares == (100, 200, 100)
    assert balancer.models == tuple(models)


def test_a_split_of_ones_own_is_called_with_models_load_and_limits() -> None:
    called = []

    def split(models: object, load: int, limits: object) -> Distribution:
        called.append((load, limits))
        return constant(models, load, limits)  # type: ignore[arg-type]

    play(Balancer(300, 2, limits=[None, 250], split=split), at_speeds(1, 2))

    assert called == [(300, [None, 250])]


def test_a_device_that_slows_down_is_followed_within_four_runs() -> None:
    balancer = Balancer(1000, 2)
    for _ in range(10):
        run(balancer, at_speeds(1, 3))

    for _ in range(4):
        run(balancer, at_speeds(1, 1.5))

    assert balancer.ask().shares == pytest.approx((400, 600), abs=12)


OPTIMAL = ("geometric", "smooth", "optimal", "dfpa", "imbalance-factor")


def best_found(method: str, load: int, speeds: list[float]) -> float:
    """The makespan of the split with which the Balancer ends."""
    balancer = Balancer(load, len(speeds), method)
    for _ in range(100):
        if balancer.reason:
            break
        shares = balancer.ask().shares
        balancer.tell([share / speed for share, speed in zip(shares, speeds, strict=True)])
    assert balancer.reason
    return max(s / v for s, v in zip(balancer.ask().shares, speeds, strict=True))


@given(
    st.sampled_from(OPTIMAL),
    st.integers(1, 6),
    st.lists(st.integers(1, 300).map(float), min_size=7, max_size=9),
)
def test_any_few_units_are_split_well(method: str, load: int, speeds: list[float]) -> None:
    best = optimal([Constant(speed) for speed in speeds], load).makespan

    assert best_found(method, load, speeds) <= 1.12 * best


# ---- noise

SEEDS = 4
RUNS = 200
LOAD = 4000


@dataclass
class Noisy:
    """Four devices; `best`: seconds of the best split without noise."""

    draw: random.Random
    times: Times
    best: float

    def run(self, balancer: Balancer) -> tuple[int, ...]:
        shares = balancer.ask().shares
        balancer.tell([self._noisy(t(x)) for t, x in zip(self.times, shares, strict=True)])
        return shares

    def _noisy(self, seconds: float) -> float:
        hiccup = 20 if self.draw.random() < 0.01 else 1
        return seconds * math.exp(self.draw.gauss(0, 0.05)) * hiccup


def machine(seed: int) -> tuple[Noisy, list[float]]:
    draw = random.Random(seed)
    speeds = [10 ** draw.uniform(0, 1) for _ in range(4)]
    return Noisy(draw, at_speeds(*speeds), LOAD / sum(speeds)), speeds


@pytest.mark.parametrize("method", ["geometric", pytest.param("smooth", marks=pytest.mark.stress)])
def test_noise_costs_little_and_moves_little(method: str) -> None:
    losses, moves = [], []
    for seed in range(SEEDS):
        noisy, _ = machine(seed)
        balancer = Balancer(LOAD, 4, method)
        splits = [noisy.run(balancer) for _ in range(RUNS)]
        losses.append(
            sum(makespan(noisy.times, split) for split in splits) / RUNS / noisy.best - 1
        )
        moves.append(sum(a != b for a, b in zip(splits[10:], splits[9:-1], strict=True)))

    assert sum(losses) / SEEDS <= 0.03
    assert sum(moves) / SEEDS <= 0.05 * (RUNS - 10)
