"""Runs in fresh processes are slower: that is learnt apart from the warm speed."""

from __future__ import annotations

import pytest

from hetsched.models.evidence.history import History
from hetsched.models.evidence.samples import Sample

COLD = 1.27


def warm_run(seconds: float = 1.0) -> list[Sample]:
    return [Sample("total", 10, seconds)]


def fresh_run(seconds: float = COLD) -> list[Sample]:
    """Return the samples of a run whose first chunk, a tenth, isn't in the total."""
    return [Sample("total", 9, 0.85 * seconds), Sample("cold", 10, seconds)]


def after(*runs: list[Sample]) -> History:
    history = History()
    for samples in runs:
        history.add(history.as_warm(samples))
    return history


def predicted(history: History) -> tuple[float, float]:
    """Return the seconds of 10 units in a warm and in a fresh process."""
    model = history.model()
    assert model is not None
    warm = float(model.time(10))
    return warm, warm * model.cold_ratio


@pytest.mark.parametrize("fresh", [1, 2, 8, 30])
def test_fresh_runs_after_warm_ones_are_predicted_and_leave_the_warm_speed(fresh: int) -> None:
    history = after(*[warm_run()] * 5, *[fresh_run()] * fresh)

    assert predicted(history) == pytest.approx((1.0, COLD))


@pytest.mark.parametrize("fresh", [1, 2, 8, 30])
def test_fresh_runs_alone_are_predicted(fresh: int) -> None:
    assert predicted(after(*[fresh_run()] * fresh))[1] == pytest.approx(COLD)


def test_warm_runs_after_fresh_ones_are_predicted_soon() -> None:
    history = after(*[fresh_run()] * 3, *[warm_run()] * 5)

    warm, cold = predicted(history)
    assert warm == pytest.approx(1.0, rel=0.02)
    assert cold == pytest.approx(COLD, rel=0.02)


def test_a_core_that_slows_down_is_noticed_in_fresh_processes() -> None:
    history = after(*[warm_run()] * 5, *[fresh_run()] * 3, *[fresh_run(2 * COLD)] * 6)

    assert predicted(history) == pytest.approx((2.0, 2 * COLD), rel=0.05)


def test_a_history_read_back_predicts_the_same() -> None:
    history = after(*[warm_run()] * 5, *[fresh_run()] * 3)

    assert predicted(History(8, history.samples())) == pytest.approx(predicted(history))


def test_a_contended_fresh_run_is_not_evidence_of_coldness() -> None:
    contended = [Sample(s.curve, s.units, 3 * s.seconds, True) for s in warm_run()]

    assert predicted(after(*[warm_run()] * 5, contended)) == pytest.approx((1.0, 1.0))


def test_a_slowdown_seen_by_warm_runs_holds_for_fresh_processes_too() -> None:
    slow = warm_run(2.0)
    history = after(*[warm_run()] * 5, *[fresh_run()] * 3, *[slow] * 3)
    assert predicted(history) == pytest.approx((2.0, 2 * COLD), rel=0.05)

    history.add(history.as_warm(fresh_run(2 * COLD)))
    assert predicted(history) == pytest.approx((2.0, 2 * COLD), rel=0.05)


def test_a_slowdown_seen_in_other_work_holds_for_fresh_processes_too() -> None:
    history = after(*[warm_run()] * 5, *[fresh_run()] * 3)

    history.apply_changes({"total": 2.0})

    assert predicted(history) == pytest.approx((2.0, 2 * COLD))


def test_chunks_of_fresh_processes_are_no_change_of_speed() -> None:
    history = History()
    for seconds in [1.0] * 8 + [COLD] * 8:
        chunks = [Sample("compute", 5, seconds / 2)]
        run = warm_run() if seconds == 1.0 else fresh_run(seconds)
        history.add(history.as_warm([*chunks, *run]))
        assert history.change is None and not history.changes


def test_lasting_contention_slows_down_fresh_processes_too() -> None:
    contended = [Sample(s.curve, s.units, 3 * s.seconds, True) for s in warm_run()]
    history = after(*[warm_run()] * 5, *[fresh_run()] * 3, *[contended] * 3)
    assert predicted(history) == pytest.approx((3.0, 3 * COLD))

    history.add(history.as_warm(fresh_run()))
    assert predicted(history) == pytest.approx((1.0, COLD))


def test_a_first_fresh_run_after_lasting_contention_leaves_the_warm_speed() -> None:
    contended = [Sample(s.curve, s.units, 3 * s.seconds, True) for s in warm_run()]
    history = after(*[warm_run()] * 5, *[contended] * 3, fresh_run())

    assert predicted(history) == pytest.approx((1.0, COLD))
