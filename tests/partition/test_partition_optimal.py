import numpy as np
import pytest
from partition_cases import Table, arbitrary

from hetsched.errors import DataError, UsageError
from hetsched.models import Constant
from hetsched.partition import optimal
from hetsched.partition.discrete import MAX_TIMES


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
