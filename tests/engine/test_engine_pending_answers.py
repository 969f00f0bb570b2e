"""Answers that are owed, and ranges of units."""

from hypothesis import given
from hypothesis import strategies as st

from hetsched.engine.job.pending_answers import Tally
from hetsched.engine.job.unit_ranges import ranges, sample_units


def test_the_last_owed_answer_calls_once() -> None:
    calls: list[str] = []
    tally = Tally(lambda: calls.append("done"), ["a", "b", "b"])
    for device in ("b", "a", "a", "b", "b"):
        tally.answered(device)
    assert calls == ["done"]


def test_answers_that_nobody_owes_change_nothing() -> None:
    calls: list[str] = []
    tally = Tally(lambda: calls.append("done"), ["a"])
    tally.answered("b")
    assert calls == []


def test_a_lost_device_owes_nothing_any_more() -> None:
    calls: list[str] = []
    tally = Tally(lambda: calls.append("done"), ["a", "a", "b"])
    tally.answered("b")
    tally.forgive(["a"])
    assert calls == ["done"]


@given(st.integers(1, 500), st.integers(1, 20))
def test_ranges_cover_every_unit_once(load: int, parts: int) -> None:
    covered = [first + i for first, count in ranges(load, parts) for i in range(count)]
    assert covered == list(range(load))
    assert all(count > 0 for _, count in ranges(load, parts))


@given(st.integers(1, 300), st.integers(0, 99))
def test_samples_hold_the_edges_and_stay_inside_the_load(load: int, seed: int) -> None:
    samples = sample_units(load, [0, load - 1], seed)
    assert {0, load - 1} <= set(samples) <= set(range(load))
