"""A change is believed after three runs; noise and single wild runs are not."""

import pytest

from hetsched.models.drift import since_change


def runs(*seconds: float, units: float = 10.0) -> list[tuple[float, float]]:
    return [(units, one) for one in seconds]


@pytest.mark.parametrize("change", [2.0, 1.3, 0.7, 0.1])
def test_three_runs_that_differ_make_what_was_before_worthless(change: float) -> None:
    assert since_change(runs(1, 1, 1, change, change, change)) == 3


@pytest.mark.parametrize(
    "seconds", [(1, 1, 1, 2, 2), (1, 1, 1, 20), (1, 1, 1, 20, 1, 1), (1, 1.1, 0.9, 1.1, 1.1, 1.1)]
)
def test_less_than_three_runs_or_less_than_a_fifth_do_not(seconds: tuple[float, ...]) -> None:
    assert since_change(runs(*seconds)) == 0


def test_one_observation_alone_says_nothing_about_what_was_before() -> None:
    assert since_change(runs(9, 1, 1, 1)) == 0


def test_a_change_is_seen_once() -> None:
    kept = runs(1, 1, 2, 2, 2)[since_change(runs(1, 1, 2, 2, 2)) :]
    for _ in range(5):
        kept += runs(2)
        assert since_change(kept) == 0


def test_sizes_never_seen_before_are_no_change() -> None:
    assert since_change(runs(1, 1, 1) + runs(50, 50, 50, units=100)) == 0


def test_near_sizes_are_compared_by_the_unit() -> None:
    before = runs(1.0, 1.0) + runs(1.1, units=11)
    assert since_change([*before, (9, 1.8), (10.5, 2.1), (12, 2.4)]) == 3
    assert since_change([*before, (9, 0.9), (10.5, 1.0), (12, 1.2)]) == 0


def test_slower_once_and_faster_once_is_no_change() -> None:
    assert since_change(runs(1, 1, 1, 2, 2, 0.5)) == 0
