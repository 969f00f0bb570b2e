"""Shares found over a few real plans, against those found over all of them."""

import itertools
import random

import pytest

from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.plan_table import PlanTable
from hetsched.planner.shares import makespan, split_load
from hetsched.planner.total_curves import PlannedCurve, TotalCurve
from hetsched.plans import Overlap

LOAD, CASES = 18, 20


def gpu(chance: random.Random) -> tuple[PlannedCurve, list[float]]:
    """One with little memory, and what its plans for 0, 1, 2, ... units take."""
    costs = [(chance.uniform(0, 0.3), chance.uniform(0.02, 0.5)) for _ in range(3)]
    model = DeviceModel(PiecewiseLinear(), *(Affine(gap, slope) for gap, slope in costs))
    memory = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=chance.randint(2, 9))
    plans = PlanTable(model, memory, chance.choice([Overlap.SINGLE, Overlap.FULL]), LOAD)
    times = [0.0, *(plans.seconds(share) for share in range(1, LOAD + 1))]
    return PlannedCurve(plans, model, LOAD), times


def test_a_few_plans_suffice_to_find_the_best_split() -> None:
    losses = []
    for seed in range(CASES):
        chance = random.Random(seed)
        (gpu0, first), (gpu1, second) = gpu(chance), gpu(chance)
        core = Affine(0.0, chance.uniform(0.3, 2))
        third = [core.time(share) for share in range(LOAD + 1)]
        best = min(
            max(first[a], second[b], third[LOAD - a - b])
            for a, b in itertools.product(range(LOAD + 1), repeat=2)
            if a + b <= LOAD
        )
        shares = split_load(LOAD, [gpu0, gpu1, TotalCurve(core)], PlanCache())
        makespan_of_split = max(t[x] for t, x in zip((first, second, third), shares, strict=True))
        losses.append(makespan_of_split / best - 1)
    assert sum(losses) / CASES <= 0.001
    assert max(losses) <= 0.02


def test_curves_are_exact_at_the_returned_shares() -> None:
    planned, times = gpu(random.Random(3))
    devices = [planned, TotalCurve(Affine(0.0, 1.0))]
    shares = split_load(LOAD, devices, PlanCache())
    assert devices[0].curve.time(shares[0]) == pytest.approx(times[shares[0]])
    assert makespan(devices, shares) == pytest.approx(max(times[shares[0]], 1.0 * shares[1]))
