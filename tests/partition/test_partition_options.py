"""The one rule of trials."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.partition.options import Option

SECONDS = st.floats(0.01, 100)


def test_what_a_trial_may_save_counts_over_the_horizon_and_what_it_may_cost_once() -> None:
    option = Option([(0.25, 6.0, 6.0), (0.75, 10.0, 14.0)], moving_cost=0.5)

    assert option.value(10.0, 12) == pytest.approx(12 * 0.25 * 4 - 0.75 * 4 - 0.5)


def test_a_known_option_is_worth_what_it_saves() -> None:
    assert Option([(1.0, 6.0, 6.0)]).value(10.0, 3) == pytest.approx(12.0)


@given(SECONDS, SECONDS, st.floats(0, 50))
def test_what_is_never_faster_is_never_worth_a_trial(
    present: float, slower: float, horizon: float
) -> None:
    option = Option([(1.0, present + slower, present + slower)])

    assert option.value(present, horizon) <= 0
