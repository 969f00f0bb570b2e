"""The slowdown by which a run is predicted after contended ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.models.contention import MAX_SLOWDOWN, Contention, lasting_slowdown


@pytest.mark.parametrize(
    "slowdowns, expected",
    [
        ((), 1.0),
        ((1.0, 1.0, 1.0, 1.0, 1.0), 1.0),
        ((1.0, 1.0, 1.0, 2.0, 2.0), 1.0),  # two may be a coincidence
        ((2.0, 2.0, 2.0), 2.0),
        ((1.0, 1.0, 2.0, 2.0, 2.0), 2.0),
        ((2.0, 2.2, 1.0, 1.0, 2.1), 2.1),  # most are contended, and the last one is again
        ((2.0, 2.2, 2.1, 2.1, 1.0), 2.1),  # one quiet run is luck
        ((2.0, 2.2, 2.1, 1.0, 1.0), 1.0),  # two show that it has ended
        ((2.0, 1.0, 1.0, 1.0, 2.0), 1.0),
        ((3.0, 3.0, 3.0, 2.0, 2.0, 2.0), 2.0),  # less than before
        ((1.2, 6.0, 1.3), 1.3),
        (
            (6.6, 1.0, 5.2, 1.0, 1.07),
            1.07,
        ),  # recorded: busy, then quiet
        ((5.2, 5.2, 5.2, 3.8, 1.3), 3.8),
        ((100.0, 100.0, 100.0), MAX_SLOWDOWN),
    ],
)
def test_golden_cases(slowdowns: tuple[float, ...], expected: float) -> None:
    assert lasting_slowdown(slowdowns) == expected


@given(st.lists(st.floats(1.0, 1e6), max_size=12))
def test_it_is_bounded_and_within_the_slowdowns_seen(slowdowns: list[float]) -> None:
    assert 1.0 <= lasting_slowdown(slowdowns) <= min(MAX_SLOWDOWN, max([1.0, *slowdowns]))


def test_faster_than_without_contention_is_no_slowdown() -> None:
    contention = Contention()
    for slowdown in (0.9, 0.8, 0.95):
        contention.add(slowdown)

    assert (contention.factor, contention.is_recent) == (1.0, False)
