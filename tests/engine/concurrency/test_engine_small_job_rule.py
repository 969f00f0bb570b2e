"""The rule about small jobs: which may start, on which core."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hetsched.engine.concurrency.small_job_rule import (
    GUESS_MARGIN,
    MAX_AHEAD,
    MAX_AHEAD_SECONDS,
    SMALL_FRACTION,
    JobSize,
    Outlook,
    SmallJobRule,
    guessed_seconds,
)

CORES = ("cpu0", "cpu1", "cpu2")
seconds = st.floats(1e-6, 1e6)


def test_a_job_is_small_up_to_a_twentieth_of_the_remaining_time() -> None:
    rule = SmallJobRule()

    assert rule.admits(0.05, None, 1.0)
    assert not rule.admits(0.051, None, 1.0)


def test_only_one_job_without_measurements_runs_at_a_time() -> None:
    rule = SmallJobRule()
    rule.begin(1)
    rule.start(2, "cpu0", 0.01, is_guess=True)

    assert not rule.admits(None, 0.01, 1.0)
    assert rule.admits(0.01, None, 1.0)
    rule.end(2)
    assert rule.admits(None, 0.01, 1.0)


def test_a_job_of_which_nothing_is_known_is_not_small() -> None:
    assert not SmallJobRule().admits(None, None, math.inf)


def test_the_core_that_is_free_first_is_chosen() -> None:
    rule = SmallJobRule()

    assert rule.core(CORES, {"cpu0": 0.03, "cpu1": 0.01, "cpu2": 0.02}) == "cpu1"
    assert rule.core(CORES, {"cpu0": 0.03, "cpu1": 0.01}) == "cpu2"


def test_of_equal_cores_the_one_that_has_lost_least_is_chosen() -> None:
    rule = SmallJobRule()
    rule.begin(1)
    rule.start(2, "cpu0", 0.01, is_guess=False)
    rule.end(2)

    assert rule.core(CORES, {}) == "cpu1"


def test_the_work_given_to_a_core_ahead_is_bounded() -> None:
    rule = SmallJobRule()
    rule.begin(1)
    rule.start(2, "cpu0", MAX_AHEAD_SECONDS, is_guess=False)
    rule.start(3, "cpu1", MAX_AHEAD_SECONDS, is_guess=False)

    assert rule.core(CORES[:2], {}) is None
    rule.end(2)
    assert rule.core(CORES[:2], {}) == "cpu0"


def test_the_jobs_given_to_a_core_ahead_are_bounded() -> None:
    rule = SmallJobRule()
    rule.begin(0)
    for number in range(1, MAX_AHEAD + 1):
        assert rule.core(("cpu0",), {}) == "cpu0"
        rule.start(number, "cpu0", 1e-6, is_guess=False)

    assert rule.core(("cpu0",), {}) is None


def test_earlier_side_jobs_count_as_time_until_a_core_is_free() -> None:
    rule = SmallJobRule()
    rule.begin(1)
    rule.start(2, "cpu0", 0.05, is_guess=False)

    assert rule.core(("cpu0", "cpu1"), {"cpu0": 0.01, "cpu1": 0.04}) == "cpu1"
    assert rule.core(("cpu0", "cpu1"), {"cpu0": 0.01, "cpu1": 0.07}) == "cpu0"


def test_side_jobs_of_an_earlier_main_job_still_occupy_their_cores() -> None:
    rule = SmallJobRule()
    rule.begin(1)
    rule.start(2, "cpu0", MAX_AHEAD_SECONDS, is_guess=False)

    rule.begin(5)

    assert rule.core(("cpu0",), {}) is None


def test_after_a_death_nothing_runs_beside_this_main_job() -> None:
    rule = SmallJobRule()
    rule.begin(1)
    rule.bar()

    assert rule.core(CORES, {}) is None
    rule.begin(1)
    assert rule.core(CORES, {}) is None
    rule.begin(2)
    assert rule.core(CORES, {}) == "cpu0"


def test_a_guess_follows_the_larger_of_bytes_and_operations() -> None:
    main = JobSize(100, nbytes=1000.0, flops=5000.0)
    outlook = Outlook(1, 10.0, {}, unit_seconds=0.1)

    by_bytes = guessed_seconds(JobSize(3, 20.0, 10.0), main, outlook)
    by_flops = guessed_seconds(JobSize(3, 10.0, 500.0), main, outlook)

    assert by_bytes == pytest.approx(GUESS_MARGIN * 0.1 * 2)
    assert by_flops == pytest.approx(GUESS_MARGIN * 0.1 * 10)


def test_without_a_pace_or_a_size_there_is_no_small_guess() -> None:
    main = JobSize(100, 1000.0, 0.0)

    assert guessed_seconds(main, main, Outlook(1, 10.0, {})) is None
    assert guessed_seconds(JobSize(1, 0.0, 0.0), main, Outlook(1, 10.0, {}, 0.1)) == math.inf


@given(st.lists(st.tuples(seconds, seconds), max_size=50))
def test_what_is_given_to_the_cores_at_once_is_bounded(
    jobs: list[tuple[float, float]],
) -> None:
    rule = SmallJobRule()
    rule.begin(0)
    work = 0.0
    largest = max((remaining for _, remaining in jobs), default=0.0)
    for number, (length, remaining) in enumerate(jobs, 1):
        core = rule.core(CORES, {})
        if core is not None and rule.admits(length, None, remaining):
            rule.start(number, core, length, is_guess=False)
            work += length

    ahead = MAX_AHEAD_SECONDS + SMALL_FRACTION * largest
    assert work <= ahead * len(CORES) * (1 + 1e-9)
