"""What a job's runs usually deviate by, and what is news."""

from __future__ import annotations

import math

from hetsched.models.usual_deviation import MAX_RUNS, MIN_RUNS, USUAL_FACTOR, UsualDeviation


def after(runs: list[float], least: float = 0.1) -> UsualDeviation:
    usual = UsualDeviation(least)
    for deviation in runs:
        usual.add(deviation)
    return usual


def test_small_deviations_are_always_usual() -> None:
    assert after([]).is_usual(0.1)


def test_larger_ones_are_usual_if_the_last_runs_deviated_about_as_much() -> None:
    noisy = after([0.15] * MIN_RUNS)

    assert noisy.is_usual(USUAL_FACTOR * 0.15)
    assert not noisy.is_usual(USUAL_FACTOR * 0.16)


def test_few_runs_do_not_show_what_is_usual() -> None:
    assert not after([0.2] * (MIN_RUNS - 1)).is_usual(0.2)


def test_runs_without_a_prediction_show_nothing() -> None:
    assert not after([math.inf] * MIN_RUNS).is_usual(0.2)


def test_a_machine_that_has_become_quiet_is_judged_as_one() -> None:
    assert not after([0.3] * MAX_RUNS + [0.01] * MAX_RUNS).is_usual(0.15)
