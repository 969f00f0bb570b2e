"""Noise and single wild runs cost little, with one seed."""

from itertools import pairwise
from statistics import fmean

import pytest

from benchmarks.learning.noisy import COUNTED_FROM, MAX_MEAN, NOISE, machine
from hetsched.simulate.learning import ideal_plan, learn
from hetsched.simulate.machine import makespan


@pytest.mark.parametrize("are_equal", [False, True])
def test_a_split_is_kept_in_noise(are_equal: bool) -> None:
    cores = machine(0, are_equal=are_equal)

    runs = learn(cores, 100, NOISE, 0)[COUNTED_FROM - 1 :]

    best = makespan(cores.play(ideal_plan(cores)))
    usual = [run.plan.shares for run in runs if not run.plan.trial]
    assert fmean(run.noiseless for run in runs) <= MAX_MEAN * best
    assert sum(before != after for before, after in pairwise(usual)) <= 0.08 * len(runs)
