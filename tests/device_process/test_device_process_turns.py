"""Whose turn it is on a device that holds several jobs."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import given

from hetsched.device_process.turns import MAX_LEAD_SECONDS, Turns


@dataclass(frozen=True)
class Job:
    is_side: bool


MAIN, SIDE, LATER_SIDE = Job(False), Job(True), Job(True)
chunk_seconds = st.floats(0.001, 0.1)


def test_a_side_job_goes_before_the_main_one() -> None:
    assert Turns().choose([MAIN, SIDE]) is SIDE


def test_the_older_of_two_side_jobs_goes_first() -> None:
    assert Turns().choose([MAIN, SIDE, LATER_SIDE]) is SIDE


def test_a_job_that_is_alone_needs_no_turn() -> None:
    assert Turns().choose([MAIN]) is MAIN
    assert Turns().choose([SIDE]) is SIDE
    assert Turns().choose([]) is None


def test_a_side_job_far_ahead_lets_the_main_one_catch_up() -> None:
    turns = Turns()
    turns.record(SIDE, 2 * MAX_LEAD_SECONDS, has_waiting_main=True)

    first = turns.choose([MAIN, SIDE])
    turns.record(MAIN, MAX_LEAD_SECONDS, has_waiting_main=True)

    assert (first, turns.choose([MAIN, SIDE])) == (MAIN, SIDE)


def test_time_that_nobody_else_wanted_does_not_count() -> None:
    turns = Turns()
    turns.record(SIDE, 100.0, has_waiting_main=False)

    assert turns.choose([MAIN, SIDE]) is SIDE


@given(st.lists(st.tuples(chunk_seconds, chunk_seconds), min_size=1, max_size=200))
def test_the_main_job_gets_half_of_the_device_whatever_the_chunks(
    chunks: list[tuple[float, float]],
) -> None:
    turns = Turns()
    main_seconds = side_seconds = 0.0
    for main_chunk, side_chunk in chunks:
        if turns.choose([MAIN, SIDE]) is MAIN:
            turns.record(MAIN, main_chunk, has_waiting_main=True)
            main_seconds += main_chunk
        else:
            turns.record(SIDE, side_chunk, has_waiting_main=True)
            side_seconds += side_chunk

        assert side_seconds <= main_seconds + MAX_LEAD_SECONDS + 0.1 + 1e-9


@given(st.lists(st.floats(0.0, 0.01), max_size=50))
def test_side_jobs_that_take_less_than_half_never_wait_for_a_turn(arrivals: list[float]) -> None:
    turns = Turns()
    for side_chunk in arrivals:
        assert turns.choose([MAIN, SIDE]) is SIDE
        turns.record(SIDE, side_chunk, has_waiting_main=True)
        turns.record(MAIN, 0.02, has_waiting_main=True)
