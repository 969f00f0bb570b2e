"""Runs in fresh processes are slower: that is learnt apart from the warm speed."""

from __future__ import annotations

import pytest

from hetsched.models import PiecewiseLinear
from hetsched.models.cold_ratios import ColdRatios
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
        record(history, samples)
    return history


def record(history: History, samples: list[Sample]) -> list[Sample]:
    """Add a run; return what is stored of it."""
    recorded = history.with_ratios(history.as_warm(samples))
    history.add(recorded)
    return history.stored(recorded)


def contended(samples: list[Sample], factor: float = 3.0) -> list[Sample]:
    """Return a run in which other processes used the core, too."""
    return [Sample(s.curve, s.units, factor * s.seconds, True) for s in samples]


def predicted(history: History) -> tuple[float, float]:
    """Return the seconds of 10 units in a warm and in a fresh process."""
    model = history.model()
    assert model is not None
    warm = float(model.time(10))
    return warm, warm * model.cold.ratio(10)


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
    history = after(*[warm_run()] * 5, contended(fresh_run()))

    assert predicted(history) == pytest.approx((1.0, 1.0))


def test_a_slowdown_seen_by_fresh_processes_does_not_scale_their_own_times() -> None:
    history = after(*[warm_run()] * 5, *[fresh_run(6.0)] * 3)

    assert predicted(history) == pytest.approx((3.0, 6.0))
    assert [s.seconds for s in history.samples() if s.curve == "cold"] == [6.0] * 3


def test_a_slowdown_seen_by_warm_runs_holds_for_fresh_processes_too() -> None:
    slow = warm_run(2.0)
    history = after(*[warm_run()] * 5, *[fresh_run()] * 3, *[slow] * 3)
    assert predicted(history) == pytest.approx((2.0, 2 * COLD), rel=0.05)

    record(history, fresh_run(2 * COLD))
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
        record(history, [*chunks, *run])
        assert history.change is None and not history.changes


def test_lasting_contention_slows_down_fresh_processes_too() -> None:
    history = after(*[warm_run()] * 5, *[fresh_run()] * 3, *[contended(warm_run())] * 3)
    assert predicted(history) == pytest.approx((3.0, 3 * COLD))

    for _ in range(2):
        record(history, fresh_run())
    assert predicted(history) == pytest.approx((1.0, COLD))


def test_a_first_fresh_run_after_lasting_contention_leaves_the_warm_speed() -> None:
    history = after(*[warm_run()] * 5, *[contended(warm_run())] * 3, fresh_run(), warm_run())

    assert predicted(history) == pytest.approx((1.0, COLD))


def test_the_slowdown_of_contended_fresh_runs_is_not_that_of_fresh_ones() -> None:
    history = after(*[warm_run()] * 5, *[fresh_run()] * 3, *[contended(fresh_run())] * 9)

    assert predicted(history) == pytest.approx((3.0, 3 * COLD))


# Each of these runs is in a process of its own, which reads what those before it have stored.


def in_processes(*runs: list[Sample]) -> History:
    stored: list[Sample] = []
    for number, samples in enumerate(runs):
        history = History(number, stored)
        history.model()
        recorded = record(history, samples)
        stored = history.samples() if history.rewritten else [*stored, *recorded]
    return History(len(runs), stored)


@pytest.mark.parametrize("contended_runs", [3, 4, 5, 8, 20])
def test_contention_that_lasts_is_predicted_in_fresh_processes(contended_runs: int) -> None:
    runs = [warm_run()] * 5 + [fresh_run()] * 3 + [contended(fresh_run())] * contended_runs

    assert predicted(in_processes(*runs)) == pytest.approx((3.0, 3 * COLD))


def test_and_no_longer_once_it_has_ended() -> None:
    runs = [warm_run()] * 5 + [fresh_run()] * 3 + [contended(fresh_run())] * 9 + [fresh_run()] * 2

    assert predicted(in_processes(*runs)) == pytest.approx((1.0, COLD))


def test_processes_that_were_always_contended_are_predicted() -> None:
    history = in_processes(*[contended(fresh_run())] * 6)

    assert predicted(history)[1] == pytest.approx(3 * COLD)


def test_contention_is_not_taken_for_the_slowness_of_fresh_processes() -> None:
    lucky, *others = [contended(fresh_run(), factor) for factor in (1.5, 3.0, 3.0, 3.0, 3.0)]

    assert predicted(in_processes(lucky, *others)) == pytest.approx((3 * COLD, 3 * COLD))


def test_predictions_follow_contention_that_was_always_there() -> None:
    busier = [contended(fresh_run(), factor) for factor in (8.0, 7.9, 8.1)]
    history = in_processes(*[contended(fresh_run())] * 6, *busier)

    assert predicted(history)[1] == pytest.approx(8 * COLD, rel=0.03)
    assert history.change is None


def test_one_quiet_run_among_contended_ones_does_not_hide_that_they_are() -> None:
    runs = [contended(fresh_run())] * 6 + [fresh_run()]
    assert predicted(in_processes(*runs))[1] == pytest.approx(3 * COLD, rel=0.1)
    assert predicted(in_processes(*runs, fresh_run()))[1] == pytest.approx(COLD)

    history = in_processes(*runs, contended(fresh_run()))
    assert predicted(history)[1] == pytest.approx(3 * COLD, rel=0.1)


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_change_of_speed_is_detected_across_processes(factor: float) -> None:
    before = [fresh_run()] * 8
    assert predicted(in_processes(*before, *[fresh_run(factor * COLD)] * 2))[1] == COLD

    history = in_processes(*before, *[fresh_run(factor * COLD)] * 3)

    assert predicted(history)[1] == pytest.approx(factor * COLD)


def test_so_is_a_small_one_after_six_runs() -> None:
    history = in_processes(*[fresh_run()] * 15, *[fresh_run(1.25 * COLD)] * 6)

    assert predicted(history)[1] == pytest.approx(1.25 * COLD)


def test_a_single_slow_process_is_no_change_of_speed() -> None:
    runs = [fresh_run()] * 8 + [fresh_run(20 * COLD)] + [fresh_run()] * 4

    assert predicted(in_processes(*runs))[1] == pytest.approx(COLD)


def test_fixed_costs_of_a_small_fresh_run_say_nothing_about_a_large_one() -> None:
    # Recorded: `models measure` begins with two planes, whose fresh process took 6.6 ms, not 2.5.
    measured = [[Sample("total", n, 1.2e-3 * n)] for n in (2, 4, 8, 16, 32, 64)]
    history = after(*measured * 3, [Sample("total", 2, 2.5e-3), Sample("cold", 2, 6.6e-3)])

    record(history, [Sample("total", 32, 38e-3), Sample("cold", 32, 39e-3)])

    model = history.model()
    assert model is not None
    assert float(model.time(32)) == pytest.approx(38.4e-3, rel=0.02)
    assert model.cold.ratio(32) == pytest.approx(39 / 38.4, rel=0.02)


def test_ratios_by_another_curve_describe_the_same_times() -> None:
    own, pooled = PiecewiseLinear([(10, 1.0)]), PiecewiseLinear([(10, 1.25)])

    assert ColdRatios(((10, 1.5),)).rebased(own, pooled).ratios == ((10, pytest.approx(1.2)),)
