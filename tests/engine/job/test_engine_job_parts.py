"""Small parts of the state machine: pending answers, ranges of units, samples to compare."""

from hypothesis import given
from hypothesis import strategies as st

from hetsched.engine.job.fill_and_check import ranges, sample_units
from hetsched.engine.job.states import PendingAnswers


def test_answers_are_pending_until_each_has_come() -> None:
    pending = PendingAnswers(["a", "b", "b"])

    states = [pending.answered(device) and bool(pending) for device in ("b", "a", "b")]

    assert states == [True, True, False]


def test_answers_that_were_not_expected_change_nothing() -> None:
    pending = PendingAnswers(["a"])

    assert not pending.answered("b")
    assert pending


def test_a_lost_device_owes_no_answer() -> None:
    pending = PendingAnswers(["a", "a", "b"])
    pending.answered("b")

    pending.drop(["a", "c"])

    assert not pending


def test_the_assignments_of_devices_are_not_counts() -> None:
    pending = PendingAnswers({"a": 5})
    pending.answered("a")

    assert not pending


@given(st.integers(1, 500), st.integers(1, 20))
def test_ranges_cover_every_unit_once(load: int, parts: int) -> None:
    covered = [first + i for first, count in ranges(load, parts) for i in range(count)]
    assert covered == list(range(load))
    assert all(count > 0 for _, count in ranges(load, parts))


@given(st.integers(1, 300), st.integers(0, 99))
def test_samples_hold_the_edges_and_stay_inside_the_load(load: int, seed: int) -> None:
    samples = sample_units(load, [0, load - 1], seed)
    assert {0, load - 1} <= set(samples) <= set(range(load))
