"""Chunks one after the other, of curves that have cliffs and steps."""

import itertools
import random

import numpy as np
import pytest
from every_plan import cuts

from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.plans import DevicePlan, MemoryDemand, Mode, Overlap, best_plan, timeline
from hetsched.plans.phase_costs import PhaseCosts, costs_of
from hetsched.plans.search.serial_chunks import MAX_EXACT_SHARE, serial_chunks

FREE = Affine(1.0, 0.0)


def memory(units: int | None) -> MemoryDemand:
    return MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=units)


def cliff(size: int, largest: int) -> DeviceModel:
    """From `size` units on a computation takes 3.5 times as long."""
    points = [(x, x * (1.0 if x < size else 3.5)) for x in range(1, largest + 1)]
    return DeviceModel(Affine(0.0, 1.0), PiecewiseLinear(points), FREE, FREE)


def seconds(plan: DevicePlan, model: DeviceModel, overlap: Overlap) -> float:
    return timeline(plan, model, overlap).makespan


@pytest.mark.parametrize("seed", range(40))
def test_no_sum_of_chunks_is_less(seed: int) -> None:
    rng = random.Random(seed)
    share, largest = rng.randint(1, 9), rng.randint(1, 9)
    table = np.array([0.0, *itertools.accumulate(rng.choice([0.1, 1, 5]) for _ in range(largest))])
    free = np.zeros(largest + 1)
    chunks = serial_chunks(share, PhaseCosts(free, table, free, (1.0, 1.0)))
    assert sum(chunks) == share
    assert max(chunks) <= largest
    optimum = min(sum(table[list(cut)]) for cut in cuts(share) if max(cut) <= largest)
    assert sum(table[list(chunks)]) == pytest.approx(optimum)


def test_large_shares_have_chunks_of_the_cheapest_size_and_a_rest() -> None:
    costs = costs_of(cliff(11, 100), 100)
    assert serial_chunks(MAX_EXACT_SHARE + 1, costs) == (10,) * 102 + (5,)


def test_a_device_without_overlap_stays_below_a_cliff() -> None:
    model = cliff(11, 100)
    plan = best_plan(100, model, memory(None), overlap=Overlap.NONE)
    assert seconds(plan, model, Overlap.NONE) == pytest.approx(100 + 20)


def test_where_copies_at_once_only_disturb_each_other_one_slot_is_best() -> None:
    """Chunks of 8 and more cost twice as much: the largest that fit aren't the best in a row."""
    steps = PiecewiseLinear([(x, 7.0 if x <= 8 else 14.0) for x in range(1, 15)])
    model = DeviceModel(FREE, Affine(0.1, 0.01), Affine(0.1, 0.05), steps, duplex=(0.1, 0.7))
    plan = best_plan(31, model, memory(14), overlap=Overlap.FULL)
    equal = DevicePlan(((8, 8, 8, 7),), Mode.RING, 1)
    assert seconds(plan, model, Overlap.FULL) <= seconds(equal, model, Overlap.FULL)


def test_a_ring_may_have_many_small_chunks_if_they_are_cheap() -> None:
    steep = PiecewiseLinear([(1, 0.04), *((x, 3.8 + x) for x in range(2, 101))])
    model = DeviceModel(FREE, Affine(0.0, 0.03), steep, Affine(0.0, 0.05))
    plan = best_plan(300, model, memory(100), overlap=Overlap.FULL)
    single = DevicePlan(((1,) * 300,), Mode.RING, 3)
    assert seconds(plan, model, Overlap.FULL) <= seconds(single, model, Overlap.FULL)
