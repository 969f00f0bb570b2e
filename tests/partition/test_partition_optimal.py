"""The optimal partitioner, against the table method on arbitrary times."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.partition_cases import Case, Scalar, Table, arbitrary
from hetsched.errors import DataError, UsageError
from hetsched.models import Akima, Constant, PiecewiseLinear
from hetsched.partition import constant, geometric, optimal
from hetsched.partition.discrete import MAX_TIMES
from hetsched.partition.distribution import predict


def least(models: Sequence[Any], load: int) -> float:
    return Case(list(models), load, None).least()


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


# Few different times, so that there are ties, and many, so that there are none.
duration = st.integers(1, 9).map(float) | st.floats(0.01, 100)
devices = st.lists(st.lists(duration, min_size=12, max_size=12).map(Table), min_size=1, max_size=4)


@given(devices, st.integers(0, 12))
def test_the_split_is_the_optimum_of_drawn_times(models: list[Table], load: int) -> None:
    assert optimal(models, load).makespan == least(models, load)


def test_models_of_numbers_only_are_asked_one_by_one() -> None:
    case = arbitrary(7)

    result = optimal([Scalar(model) for model in case.models], case.load, case.limits)

    assert result == optimal(case.models, case.load, case.limits)


@pytest.mark.parametrize("period", [3, 7, 8])
@pytest.mark.parametrize("load", [199, 200])
def test_sizes_of_few_good_ones_are_combined_exactly(period: int, load: int) -> None:
    rng, x = np.random.default_rng(period), np.arange(1, load + 1)
    slow = np.where(x % period, 3.0, 1.0)
    models = [Table(x * slow * rng.uniform(0.5, 2)) for _ in range(4)]

    assert optimal(models, load).makespan == least(models, load)


def test_a_larger_share_can_be_done_sooner() -> None:
    times = [9.0, 9.0, 9.0, 5.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]

    assert optimal([Table(times)] * 3, 12).shares == (4, 4, 4)
    assert optimal([Table(times)] * 3, 12).makespan == 5.0


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 60), st.floats(1e-3, 100)), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 300),
)
def test_where_times_rise_geometric_finds_the_same(
    knots: list[list[tuple[int, float]]], load: int
) -> None:
    models = [PiecewiseLinear(observed) for observed in knots]

    expected = geometric(models, load).makespan

    assert optimal(models, load).makespan == pytest.approx(expected, rel=1e-12)


@given(st.integers(0, 10**6))
def test_no_other_method_finishes_sooner(seed: int) -> None:
    case = arbitrary(seed)

    result = optimal(case.models, case.load).makespan

    even = [case.load // len(case.models)] * len(case.models)
    even[0] += case.load - sum(even)
    assert result <= predict(case.models, even).makespan
    assert result <= constant(case.models, case.load).makespan
    assert result <= geometric(case.models, case.load).makespan
    assert optimal([*case.models, Table([0.5] * 60)], case.load).makespan <= result


@given(st.integers(0, 10**6), st.integers(-20, 20))
def test_order_and_a_common_factor_do_not_matter(seed: int, power: int) -> None:
    case = arbitrary(seed)
    slower = [Table(model.times[1:] * 2.0**power) for model in reversed(case.models)]

    expected = optimal(case.models, case.load).makespan * 2.0**power

    assert optimal(slower, case.load).makespan == expected


def test_dips_that_akima_shows_are_used() -> None:
    model = Akima([(10, 1.0), (20, 9.0), (40, 4.0), (60, 9.0)], load=80)

    result = optimal([model, Constant(10.0)], 60)

    assert result.makespan < geometric([model, Constant(10.0)], 60).makespan
    assert result.makespan <= constant([model, Constant(10.0)], 60).makespan


def test_an_infinite_time_is_a_size_that_cannot_be_done() -> None:
    even = Table([np.inf, 2.0, np.inf, 4.0])

    assert optimal([even, even], 4).shares in {(2, 2)}
    with pytest.raises(DataError, match="no split of 3 units"):
        optimal([even, even], 3)
    with pytest.raises(DataError, match="no split of 4 units"):
        optimal([Table([np.inf] * 4)], 4)


@pytest.mark.parametrize("invalid", [-1.0, 0.0, float("nan")])
def test_a_model_that_lies_is_named(invalid: float) -> None:
    with pytest.raises(UsageError, match=r"model of device 1: .* for 3 units"):
        optimal([Constant(1.0), Table([1.0, 1.0, invalid, 1.0])], 4)


def test_more_times_than_memory_holds_are_refused() -> None:
    with pytest.raises(UsageError, match="use geometric"):
        optimal([Constant(1.0)], MAX_TIMES)
