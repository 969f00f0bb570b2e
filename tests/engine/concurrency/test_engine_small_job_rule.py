"""The rule about small jobs: which may start, on which core."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hetsched.engine.concurrency.small_job_rule import (
    GUESS_MARGIN,
    JobSize,
    Outlook,
    SmallJobRule,
    guessed_seconds,
)

CORES = ("cpu0", "cpu1", "cpu2")


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


def test_a_core_that_has_nothing_left_to_do_is_chosen() -> None:
    rule = SmallJobRule()
    rule.begin(1)
    rule.start(2, "cpu2", 0.01, is_guess=False)
    rule.end(2)

    assert rule.choose(CORES, {"cpu0", "cpu1"}) == "cpu2"


def test_of_equal_cores_the_one_that_has_lost_least_is_chosen() -> None:
    rule = SmallJobRule()
    rule.begin(1)
    rule.start(2, "cpu0", 0.01, is_guess=False)
    rule.end(2)

    assert rule.choose(CORES, CORES) == "cpu1"


def test_a_core_has_one_side_job_at_a_time() -> None:
    rule = SmallJobRule()
    rule.begin(1)
    rule.start(2, "cpu0", 0.01, is_guess=False)

    assert rule.free(CORES) == {"cpu1", "cpu2"}
    rule.end(2)
    assert rule.free(CORES) == {*CORES}


def test_side_jobs_of_an_earlier_main_job_still_occupy_their_cores() -> None:
    rule = SmallJobRule()
    rule.begin(1)
    rule.start(2, "cpu0", 0.01, is_guess=False)

    rule.begin(5)

    assert rule.free(CORES) == {"cpu1", "cpu2"}


def test_after_a_death_nothing_runs_beside_this_main_job() -> None:
    rule = SmallJobRule()
    rule.begin(1)
    rule.bar()

    assert not rule.free(CORES)
    rule.begin(1)
    assert not rule.free(CORES)
    rule.begin(2)
    assert rule.free(CORES) == {*CORES}


def test_a_guess_follows_the_larger_of_bytes_and_operations() -> None:
    main = JobSize(100, nbytes=1000.0, flops=5000.0)
    outlook = Outlook(1, 10.0, (), unit_seconds=0.1)

    by_bytes = guessed_seconds(JobSize(3, 20.0, 10.0), main, outlook)
    by_flops = guessed_seconds(JobSize(3, 10.0, 500.0), main, outlook)

    assert by_bytes == pytest.approx(GUESS_MARGIN * 0.1 * 2)
    assert by_flops == pytest.approx(GUESS_MARGIN * 0.1 * 10)


def test_without_a_pace_or_a_size_there_is_no_small_guess() -> None:
    main = JobSize(100, 1000.0, 0.0)

    assert guessed_seconds(main, main, Outlook(1, 10.0, ())) is None
    assert guessed_seconds(JobSize(1, 0.0, 0.0), main, Outlook(1, 10.0, (), 0.1)) == math.inf


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=50))
def test_whatever_starts_and_ends_no_core_has_two_side_jobs(
    steps: list[tuple[bool, int]],
) -> None:
    rule = SmallJobRule()
    rule.begin(0)
    for starts, number in steps:
        free = rule.free(CORES)
        if not starts:
            rule.end(number)
        elif free and number not in rule.running:
            rule.start(number, rule.choose(sorted(free), CORES), 0.01, is_guess=False)

        assert len(set(rule.running.values())) == len(rule.running)
