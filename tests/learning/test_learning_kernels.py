"""Kernels that are no straight line, learnt from nothing; more seeds: `benchmarks.learning`."""

from __future__ import annotations

import pytest

from benchmarks.learning.kernels import CASES, COUNTED_FROM, MAX_RATIO, NOISE, Case
from hetsched.simulate.learning import ideal_plan, learn
from hetsched.simulate.machine import makespan

RUNS = 8
ALONE = [case for case in CASES if not case.cores]
"""In these the plan with exactly known costs is within 1 % of the best one known."""


@pytest.mark.parametrize("case", ALONE[:7], ids=lambda case: case.name)
def test_the_plan_of_a_kernel_with_steps_is_near_the_best_from_run_6_on(case: Case) -> None:
    machine = case.machine()
    best = makespan(machine.play(ideal_plan(machine)))

    runs = learn(machine, RUNS, NOISE, seed=1)

    counted = [run.noiseless / best for run in runs[COUNTED_FROM - 1 :]]
    assert max(counted) <= MAX_RATIO
    assert counted[-1] <= case.max_mean


@pytest.mark.parametrize("kernel", ["3.5 times", "waves of 16"])
def test_with_cores_the_split_follows_the_kernel(kernel: str) -> None:
    (case,) = (case for case in CASES if case.cores and kernel in case.name)
    machine = case.machine()
    best = makespan(machine.play(ideal_plan(machine)))

    ratios = [run.noiseless / best for run in learn(machine, 12, NOISE, seed=1)]

    assert max(ratios[COUNTED_FROM - 1 :]) <= MAX_RATIO
    assert ratios[-1] <= case.max_mean
