"""The tail of a job on cores whose speed varies, learnt from nothing, with small counts."""

import pytest

from benchmarks.learning.tail import (
    MAX_OVER_IDEAL,
    MAX_OVER_TODAY,
    VARIATION,
    irregular_ratio,
    mean_ratio,
)


@pytest.mark.parametrize("count", [2, 8, 16])
def test_with_a_tail_cores_finish_almost_together(count: int) -> None:
    assert mean_ratio(count, VARIATION, 1, 24) <= MAX_OVER_IDEAL[count]


def test_without_variation_nothing_is_lost() -> None:
    today = mean_ratio(8, 0.0, 1, 20, has_tail=False)
    assert mean_ratio(8, 0.0, 1, 20) <= MAX_OVER_TODAY * today


def test_irregular_units_gain_too() -> None:
    assert irregular_ratio(8, 1, 20) < 1.06
