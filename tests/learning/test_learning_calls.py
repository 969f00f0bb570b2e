"""Kernels whose calls are expensive, learnt from nothing, with small counts."""

import pytest

from benchmarks.learning.calls import CASES, COUNTED_FROM, MAX_RATIO, Case, ratios, runs


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_few_calls_are_planned_from_run_six_on(case: Case) -> None:
    assert max(ratios(case, 0)[COUNTED_FROM - 1 :]) <= MAX_RATIO


def test_predictions_contain_the_calls() -> None:
    for run in runs(CASES[0], 1, 20)[-3:]:
        assert run.plan.predicted_seconds == pytest.approx(run.noiseless, rel=0.05)
