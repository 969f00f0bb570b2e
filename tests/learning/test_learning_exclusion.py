"""Cores that were slow for a while get equal shares again (`benchmarks.learning exclusion`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.learning.exclusion import (
    ALWAYS_SLOW,
    CASES,
    MAX_MEAN_RATIO,
    MAX_RUNS_TO_RECOVER,
    Case,
    learnt,
    mean_ratio,
    runs_to_recover,
)


@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.name)
def test_shares_are_equal_again_after_slow_runs(case: Case) -> None:
    case = replace(case, runs=min(case.runs, 50))
    assert runs_to_recover(case, learnt(case, 1)) <= MAX_RUNS_TO_RECOVER


def test_probes_of_a_core_that_stays_slow_cost_little() -> None:
    assert mean_ratio(ALWAYS_SLOW, learnt(ALWAYS_SLOW, 0), first=3) <= MAX_MEAN_RATIO
