"""A step of a kernel is no change of speed, and a change is one; few seeds."""

import pytest

from benchmarks.learning.changes import (
    CLEAN_RUNS,
    LARGER,
    MAX_ERROR,
    MAX_ERROR_AFTER_CHANGE,
    USUAL,
    prediction_error,
    runs_at_a_change,
    runs_at_a_step,
)


@pytest.mark.parametrize("seed", range(2))
def test_after_larger_loads_past_a_cache_the_usual_one_is_predicted_as_before(seed: int) -> None:
    runs = runs_at_a_step(seed)

    usual = runs[CLEAN_RUNS + len(LARGER) :]
    assert {run.plan.load for run in usual} == {2 * USUAL}
    assert max(prediction_error(run) for run in usual) <= MAX_ERROR


@pytest.mark.parametrize("seed", range(2))
def test_a_core_half_as_fast_is_known_after_three_runs(seed: int) -> None:
    *_, before, last = runs_at_a_change(seed)

    assert prediction_error(last) <= MAX_ERROR_AFTER_CHANGE
    assert last.noiseless < 0.8 * before.noiseless
