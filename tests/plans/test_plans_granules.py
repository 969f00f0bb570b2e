"""Shares of very many units are planned in granules, at a cost that doesn't grow with the load."""

from __future__ import annotations

import random
from typing import Any

import pytest
from counted_curve import Counted

from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.plans import Overlap, best_plan, check, compare_plans, quick_plan, timeline
from hetsched.plans.granules import MAX_GRANULES, granular
from hetsched.plans.search import ring_search
from hetsched.plans.slot_allocation import slotted

MAX_EVALUATIONS = 20 * MAX_GRANULES
"""Sizes at which all phases of one share together are evaluated."""


def device(seed: int) -> tuple[DeviceModel, Overlap]:
    """Fixed costs of 5 to 30 us, 1 ns to 0.1 us a unit."""
    rng = random.Random(seed)
    phases = [Affine(rng.uniform(5e-6, 30e-6), 10 ** rng.uniform(-9, -7)) for _ in range(3)]
    model = DeviceModel(PiecewiseLinear(), phases[0], phases[1], phases[2])
    return model, rng.choice([Overlap.SINGLE, Overlap.FULL])


def room_for(units: int) -> MemoryDemand:
    return MemoryDemand(input_bytes=8, work_bytes=0, output_bytes=8, limit=16 * units)


@pytest.mark.parametrize("seed", range(6))
def test_chunks_of_a_large_share_sum_to_it_and_fit(seed: int) -> None:
    rng = random.Random(seed)
    model, overlap = device(seed)
    share, room = rng.randint(10**5, 10**8), rng.randint(2 * MAX_GRANULES, 10**7)
    memory = slotted(room_for(room))

    for plan in (
        quick_plan(share, model, memory, overlap),
        best_plan(share, model, memory, overlap=overlap),
    ):
        assert plan.share == share
        check(plan, memory)


@pytest.mark.parametrize("seed", range(12))
def test_a_plan_of_many_chunks_is_chosen_at_a_smaller_share(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, overlap = device(seed)
    share, memory = 10**5 + seed, slotted(room_for(random.Random(seed).randint(40, 300) * 32))
    whole = quick_plan(share, model, memory, overlap)

    monkeypatch.setattr(ring_search, "MAX_PRICED_CHUNKS", len(whole.chunks) // 3)
    plan = quick_plan(share, model, memory, overlap)

    check(plan, memory)
    assert plan.share == share
    seconds = [timeline(each, model, overlap).makespan for each in (whole, plan)]
    assert seconds[1] <= 1.001 * seconds[0]


def test_a_share_of_few_units_is_planned_in_units() -> None:
    model, _ = device(0)
    share = granular(10**9, model, room_for(MAX_GRANULES))
    assert (share.granule, share.share, share.model) == (1, 10**9, model)


def test_the_last_granule_may_be_incomplete() -> None:
    model, overlap = device(1)
    share = granular(4 * MAX_GRANULES + 1, model, room_for(10**9))
    assert (share.granule, share.share) == (5, -(-(4 * MAX_GRANULES + 1) // 5))
    plan = share.in_units(quick_plan(share.share, share.model, share.memory, overlap))
    assert plan.share == 4 * MAX_GRANULES + 1
    assert sum(size % 5 > 0 for size in plan.chunks) == 1


def test_granules_have_the_costs_of_their_units() -> None:
    model, overlap = device(2)
    share = granular(10 * MAX_GRANULES, model, room_for(10**9))
    coarse = quick_plan(share.share, share.model, share.memory, overlap)
    fine = share.in_units(coarse)
    expected = timeline(fine, model, overlap).makespan
    assert timeline(coarse, share.model, overlap).makespan == pytest.approx(expected)


def test_evaluations_of_the_model_do_not_grow_with_the_share() -> None:
    model, overlap = device(3)
    totals = []
    for share in (10**6, 10**9):
        curve = Counted(model.compute)
        counted = DeviceModel(PiecewiseLinear(), curve, model.h2d, model.d2h)
        compare_plans(share, counted, slotted(room_for(share // 2)), overlap=overlap)
        totals.append(sum(curve.sizes))
    assert max(totals) <= MAX_EVALUATIONS, totals


def test_a_kernel_in_steps_has_no_plans_of_very_many_chunks_priced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wave = 10**5
    knots = [(size, (step + 1) * 1e-3) for step in range(20)
             for size in (wave * step + 1, wave * (step + 1))]  # fmt: skip
    link = Affine(1e-5, 1e-9)
    model = DeviceModel(PiecewiseLinear(), PiecewiseLinear(knots), link, link)
    counts: list[int] = []
    price = ring_search.makespans

    def priced(chunks: Any, *arguments: Any) -> Any:
        counts.append(chunks.shape[-1])
        return price(chunks, *arguments)

    monkeypatch.setattr(ring_search, "makespans", priced)
    plan = quick_plan(20 * wave, model, slotted(room_for(20 * wave)), Overlap.FULL)

    assert plan.share == 20 * wave
    assert max(counts) <= 2 * ring_search.MAX_CHEAP_CHUNKS
