"""Medians and confidence intervals of repeats."""

import math

import numpy as np
import pytest

from hetsched.models.confidence import (
    confidence_interval,
    knot_of,
)


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


@pytest.mark.parametrize("count", [2, 3, 5, 6, 9, 30])
def test_nineteen_of_twenty_intervals_contain_the_true_median(count: int) -> None:
    rng = np.random.default_rng(7)
    noise = np.exp(0.05 * rng.standard_normal((1000, count)))
    intervals = [confidence_interval(row.tolist()) for row in noise]
    containing = sum(low <= 1.0 <= high for low, high in intervals)
    assert containing >= 930
