import heapq
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partition_cases import Table, arbitrary, monotone

from hetsched.errors import DataError, UsageError
from hetsched.models import Constant, PiecewiseLinear
from hetsched.partition import geometric, optimal, round_greedy, smooth
from hetsched.partition.discrete import MAX_TIMES
from hetsched.partition.distribution import predict


def test_a_foreign_model_is_asked_for_whole_units_once_each() -> None:
    sizes: list[int] = []

    def time(x: int) -> float:
        sizes.append(x)
        return x / 3

    model = SimpleNamespace(speed=lambda x: 3.0, time=time, inverse=lambda seconds: 10**9)

    assert geometric([model, Constant(1.0)], 8).shares == (6, 2)
    assert all(type(x) is int for x in sizes)
    assert len(sizes) == len(set(sizes)) <= 8


def test_level_times_of_a_huge_load_are_split_in_order_of_devices() -> None:
    flat = SimpleNamespace(speed=lambda x: x / 2.0, time=lambda x: 2.0)

    assert geometric([Constant(1.0), flat, flat], 10**12, [None, 10**11, None]).shares == (
        2,
        10**11,
        9 * 10**11 - 2,
    )


def test_an_infinite_time_is_a_size_that_cannot_be_done() -> None:
    small = SimpleNamespace(speed=lambda x: 1.0, time=lambda x: x if x <= 4 else float("inf"))

    assert geometric([small, Constant(0.1)], 10).shares == (4, 6)
    with pytest.raises(DataError, match="no split of 9 units has a finite time"):
        geometric([small, small], 9)
    with pytest.raises(DataError, match="no split of 1000000000 units"):
        geometric([small, small], 10**9)


def test_speeds_beyond_all_measure_are_still_split() -> None:
    assert geometric([Constant(1e-300), Constant(1e-300)], 4).shares == (2, 2)
    assert geometric([Constant(1e300), Constant(3e300)], 4).shares == (1, 3)
    assert geometric([Constant(1e300), Constant(1e-300)], 4).shares == (4, 0)


def test_a_hundred_thousand_equal_devices_share_a_load_equally() -> None:
    shares = geometric([PiecewiseLinear([(10, 2.0), (40, 5.0)])] * 10**5, 10**6 + 1).shares

    assert set(shares) == {10, 11}
    assert shares[0] == 11


class Power:
    """t(x) = a x^b, numbers only and no derivative."""

    def __init__(self, a: float, b: float) -> None:
        self.a, self.b = a, b

    def time(self, x: float) -> float:
        return self.a * float(x) ** self.b

    def speed(self, x: float) -> float:
        return x / self.time(x)


class Flat(Power):
    """The same time for any size."""

    def time(self, x: float) -> float:
        return self.a


class Fast(Power):
    """A slope that lies, so that steps are too small to get anywhere."""

    def derivative(self, x: float) -> float:
        return 1e12


@pytest.mark.parametrize("models", [[Flat(1.0, 1.0), Flat(2.0, 1.0)], [Fast(1, 1), Fast(2, 1)]])
def test_without_a_root_the_split_is_that_of_geometric_and_says_why(models: Any) -> None:
    result = smooth(models, 60)

    assert result.shares == geometric(models, 60).shares
    assert result.reason.startswith("smooth: ")
    assert result.reason.endswith("geometric's split instead")


MODELS = [Constant(speed) for speed in (1, 2, 4)]


def greedy(models: list[Any], shares: list[int], load: int, max_shares: list[int]) -> list[int]:
    """One unit after the other, to the device that ends first with it."""
    shares = list(shares)
    ends = [(model.time(x + 1), i) for i, (model, x) in enumerate(zip(models, shares, strict=True))
            if x < max_shares[i]]  # fmt: skip
    heapq.heapify(ends)
    while sum(shares) < load:
        i = heapq.heappop(ends)[1]
        shares[i] += 1
        if shares[i] < max_shares[i]:
            heapq.heappush(ends, (models[i].time(shares[i] + 1), i))
    return shares


def test_parts_that_are_too_much_are_taken_from_those_who_end_last() -> None:
    assert round_greedy(MODELS, [3.0, 4.0, 8.0], 14, [99, 99, 99]) == [2, 4, 8]
    assert round_greedy(MODELS, [20.0, 20.0, 20.0], 14) == [2, 4, 8]


@given(st.integers(0, 10**6), st.data())
def test_whatever_is_left_is_handed_out_like_greedy(seed: int, data: st.DataObject) -> None:
    case = monotone(seed)
    max_shares = [case.load if limit is None else limit for limit in case.limits or [None] * 6]
    parts = greedy(
        case.models, [0] * len(case.models), data.draw(st.integers(0, case.load)), max_shares
    )

    rounded = round_greedy(case.models, parts, case.load, case.limits)

    expected = greedy(case.models, parts, case.load, max_shares)
    assert all(x >= part for x, part in zip(rounded, parts, strict=True))
    assert predict(case.models, rounded).makespan == predict(case.models, expected).makespan


# ---- times of any shape


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_the_split_is_the_optimum_in_random_cases(first: int) -> None:
    for case in map(arbitrary, range(first, first + 50)):
        result = optimal(case.models, case.load, case.limits)

        assert sum(result.shares) == case.load
        limits = case.limits or [None] * len(case.models)
        assert all(
            0 <= share <= (case.load if limit is None else limit)
            for share, limit in zip(result.shares, limits, strict=True)
        )
        assert result.makespan == case.least()


def test_optimal_avoids_sizes_of_infinite_times() -> None:
    even = Table([np.inf, 2.0, np.inf, 4.0])

    assert optimal([even, even], 4).shares in {(2, 2)}
    with pytest.raises(DataError, match="no split of 3 units"):
        optimal([even, even], 3)
    with pytest.raises(DataError, match="no split of 4 units"):
        optimal([Table([np.inf] * 4)], 4)


def test_more_times_than_memory_holds_are_refused() -> None:
    with pytest.raises(UsageError, match="use geometric"):
        optimal([Constant(1.0)], MAX_TIMES)
