"""Small parts of the state machine: pending answers, ranges of units, samples to compare."""

from hypothesis import given
from hypothesis import strategies as st

from hetsched.engine.job.fill_and_check import ranges, sample_units
from hetsched.engine.job.states import PendingAnswers


def test_answers_are_pending_until_each_has_come() -> None:
    pending = PendingAnswers(["a", "b", "b"], 0.0)

    states = [pending.answered(device, 1.0) and bool(pending) for device in ("b", "a", "b")]

    assert states == [True, True, False]


def test_answers_that_were_not_expected_change_nothing() -> None:
    pending = PendingAnswers(["a"], 0.0)

    assert not pending.answered("b", 1.0)
    assert pending


def test_a_lost_device_owes_no_answer() -> None:
    pending = PendingAnswers(["a", "a", "b"], 0.0)
    pending.answered("b", 1.0)

    pending.drop(["a", "c"])

    assert not pending


def test_the_assignments_of_devices_are_not_counts() -> None:
    pending = PendingAnswers({"a": 5}, 0.0)
    pending.answered("a", 1.0)

    assert not pending


def test_progress_restarts_the_wait_for_a_device() -> None:
    pending = PendingAnswers(["a", "b", "b"], 3.0)
    pending.progressed("a", 5.0)
    pending.answered("b", 6.0)

    assert pending.waits() == {"a": 5.0, "b": 6.0}


@given(st.integers(1, 500), st.integers(1, 20))
def test_ranges_cover_every_unit_once(load: int, parts: int) -> None:
    covered = [first + i for first, count in ranges(load, parts) for i in range(count)]
    assert covered == list(range(load))
    assert all(count > 0 for _, count in ranges(load, parts))


@given(st.integers(1, 300), st.integers(0, 99))
def test_samples_hold_the_edges_and_stay_inside_the_load(load: int, seed: int) -> None:
    samples = sample_units(load, [0, load - 1], seed)
    assert {0, load - 1} <= set(samples) <= set(range(load))
