"""When devices save their rows: the time that it takes against the work that a loss repeats."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device_process.epochs import SaveSchedule


def saves(schedule: SaveSchedule, last: int, save_seconds: float) -> list[int]:
    """The iterations, of a second each, that are saved."""
    saved = []
    for iteration in range(last + 1):
        if iteration:
            schedule.add(1.0)
        if schedule.is_due(iteration):
            saved.append(iteration)
            schedule.saved(iteration, save_seconds)
    return saved


def test_short_saves_take_two_percent_of_the_time() -> None:
    assert saves(SaveSchedule(10_000), 40, 0.2)[-4:] == [10, 20, 30, 40]


def test_of_an_unknown_number_of_iterations_those_so_far_count() -> None:
    saved = saves(SaveSchedule(None), 1000, 50.0)
    assert saved[0] == 50
    assert 940 < saved[-1] <= 1000
    assert len(saved) < 200


@given(
    total=st.none() | st.integers(1, 3000),
    seconds=st.floats(0.0, 1e3),
    last=st.integers(1, 500),
)
def test_a_loss_never_repeats_more_than_two_percent_and_one_iteration(
    total: int | None, seconds: float, last: int
) -> None:
    saved = saves(SaveSchedule(total), last, seconds)
    for before, after in pairwise(saved):
        work = before if total is None else max(total, after)
        assert 2 <= after - before <= 1 + 0.02 * max(work, after)


@pytest.mark.parametrize("total", [None, 49])
def test_in_few_iterations_nothing_is_held_back(total: int | None) -> None:
    assert saves(SaveSchedule(total), 49, 1.0) == []
