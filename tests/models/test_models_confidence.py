import math

import pytest

from hetsched.models.confidence import confidence_interval, knot_of


def test_a_single_time_has_an_unbounded_interval() -> None:
    assert confidence_interval([3.0]) == (0.0, math.inf)
    assert knot_of(1, [3.0]).half_width == math.inf


@pytest.mark.parametrize(("count", "rank"), [(6, 0), (8, 0), (9, 1), (12, 2), (20, 5), (30, 9)])
def test_the_ranks_are_those_of_the_published_tables(count: int, rank: int) -> None:
    assert confidence_interval([float(i) for i in range(1, count + 1)]) == (rank + 1, count - rank)


def test_few_times_get_student_s_interval_of_their_logarithms() -> None:
    low, high = confidence_interval([1.0, math.e, math.e**2])
    wide = 4.303 / math.sqrt(3)
    assert (math.log(low), math.log(high)) == pytest.approx((1 - wide, 1 + wide))
