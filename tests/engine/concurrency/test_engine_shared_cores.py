"""What small jobs cost a large one, and how long they wait: simulated on virtual time."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from shared_cores import CHUNK_SECONDS, SharedCores

LONG = 20.0


def alone(cores: int, seconds: float) -> float:
    return SharedCores(cores, seconds, []).run().main_end


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_a_thousand_small_jobs_cost_a_large_one_their_own_work(cores: int) -> None:
    small = [(0.015 * number, 0.005) for number in range(1000)]

    outcome = SharedCores(cores, LONG, small).run()

    work = 1000 * 0.005
    assert outcome.unstarted == 0
    assert outcome.main_end <= 1.05 * (alone(cores, LONG) + work / cores)


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_each_of_them_starts_at_once_if_a_core_is_free(cores: int) -> None:
    small = [(0.1 * number, 0.005) for number in range(180)]

    outcome = SharedCores(cores, LONG, small).run()

    assert outcome.waits == [0.0] * 180


@pytest.mark.parametrize("cores", [1, 2])
def test_almost_all_start_soon_if_they_are_a_third_of_the_work(cores: int) -> None:
    generator = random.Random(0)
    work = cores * LONG / 3 / 1000
    small = sorted((generator.uniform(0.0, LONG), work) for _ in range(1000))

    outcome = SharedCores(cores, LONG, small).run()

    assert sorted(outcome.waits)[989] < 0.1
    assert outcome.main_end <= 1.05 * (alone(cores, LONG) + 1000 * work / cores)


@pytest.mark.parametrize("cores", [1, 4])
def test_small_jobs_without_end_leave_the_large_one_half_of_the_cores(cores: int) -> None:
    small = [(0.001 * number, 0.01) for number in range(6000)]

    outcome = SharedCores(cores, 2.0, small).run()

    assert outcome.main_end <= 2 * alone(cores, 2.0) + 0.3
    assert outcome.unstarted > 0


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 4),
    st.floats(0.5, 10.0),
    st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(1e-4, 1.0)), max_size=40),
)
def test_the_delay_is_bounded_whatever_is_submitted(
    cores: int, seconds: float, small: list[tuple[float, float]]
) -> None:
    """A side job on one core delays the whole by its work at most, if nothing can be stolen."""
    outcome = SharedCores(cores, seconds, sorted(small)).run()

    work = sum(length for _, length in small)
    assert outcome.main_end <= 1.05 * (alone(cores, seconds) + work) + 2 * CHUNK_SECONDS
    assert len(outcome.waits) + outcome.unstarted == len(small)
