"""The optimal partitioner, against the table method on arbitrary times."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.partition_cases import Case, Table, arbitrary
from hetsched.errors import DataError, UsageError
from hetsched.models import Constant
from hetsched.partition import optimal
from hetsched.partition.discrete import MAX_TIMES


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


@pytest.mark.parametrize("period", [3, 7, 8])
@pytest.mark.parametrize("load", [199, 200])
def test_sizes_of_few_good_ones_are_combined_exactly(period: int, load: int) -> None:
    rng, x = np.random.default_rng(period), np.arange(1, load + 1)
    slow = np.where(x % period, 3.0, 1.0)
    models = [Table(x * slow * rng.uniform(0.5, 2)) for _ in range(4)]

    assert optimal(models, load).makespan == least(models, load)


def test_an_infinite_time_is_a_size_that_cannot_be_done() -> None:
    even = Table([np.inf, 2.0, np.inf, 4.0])

    assert optimal([even, even], 4).shares in {(2, 2)}
    with pytest.raises(DataError, match="no split of 3 units"):
        optimal([even, even], 3)
    with pytest.raises(DataError, match="no split of 4 units"):
        optimal([Table([np.inf] * 4)], 4)


def test_more_times_than_memory_holds_are_refused() -> None:
    with pytest.raises(UsageError, match="use geometric"):
        optimal([Constant(1.0)], MAX_TIMES)
