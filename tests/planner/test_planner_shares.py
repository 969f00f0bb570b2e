"""Shares found over a few real plans, against those found over all of them."""

import itertools
import random
from dataclasses import replace

import pytest

from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear, Polyline
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.plan_table import PlanTable
from hetsched.planner.shares import makespan, split_load
from hetsched.planner.total_curves import PlannedCurve, TotalCurve
from hetsched.plans import Overlap
from hetsched.plans.device_plan import DevicePlan, Mode

LOAD, CASES = 18, 20
COPY = Affine(0.01, 0.01)


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


def test_units_that_cost_no_time_fill_up_the_chunks_of_a_kernel_with_steps() -> None:
    waves = Polyline([(x, 0.4 + 1.6 * -(-x // 16)) for x in range(1, 513)])
    copy = Affine(0.2, 0.06)
    memory = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1, limit=1 << 20)
    model = DeviceModel(PiecewiseLinear(), waves, copy, copy)
    plans = PlanTable(model, memory, Overlap.FULL, 512)
    cores = [TotalCurve(Affine(0.0, 0.4)) for _ in range(2)]

    shares = split_load(512, [PlannedCurve(plans, model, 512), *cores], PlanCache())

    seconds = max(plans.seconds(shares[0]), 0.4 * shares[1], 0.4 * shares[2])
    best = min(max(plans.seconds(s), 0.4 * -(-(512 - s) // 2)) for s in range(300, 340))
    assert seconds <= 1.01 * best


def test_a_measured_share_is_compared_with_the_plan_that_took_that_time() -> None:
    steps = Polyline([(x, (1.0 if x < 9 else 2.0) * x) for x in range(1, 65)])
    model = DeviceModel(PiecewiseLinear(), steps, COPY, COPY)
    memory = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1, limit=1 << 20)
    plans = PlanTable(model, memory, Overlap.FULL, 64)
    last = DevicePlan(((16,) * 4,), Mode.RING, 2)
    measured = replace(model, total=PiecewiseLinear([(64, plans.seconds_of(last))]))

    curve = PlannedCurve(plans, measured, 64, last=last)
    curve.refine(32)

    assert curve.curve.time(32) == pytest.approx(plans.seconds(32))
