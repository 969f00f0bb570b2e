"""Bounds of whole machines: never above the best split with the best plans."""

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest
from every_plan import least_seconds, random_case

from hetsched.errors import DataError, UsageError
from hetsched.models import Affine, DeviceModel
from hetsched.planner.analysis.machine_bound import MachineDevice, fluid_bound, whole_unit_bound
from hetsched.planner.plan_cache import PlanCache
from hetsched.plans import MemoryDemand, Overlap

PLANE = 2 << 20
CASES, MOST = 60, 6


def core(unit: float, gap: float = 0.0, name: str = "core") -> MachineDevice:
    return MachineDevice(name, DeviceModel(Affine(gap, unit), Affine(gap, unit)), None, None)


def gpu(gap: float, unit: float, h2d: float, d2h: float, limit: int = 1 << 30) -> MachineDevice:
    """A GPU of so many seconds a kernel and a plane, behind a link of so many B/s."""
    copies = Affine(1e-5, PLANE / h2d), Affine(1e-5, PLANE / d2h)
    memory = MemoryDemand(input_bytes=PLANE, work_bytes=0, output_bytes=PLANE, limit=limit)
    return MachineDevice(
        "gpu", DeviceModel(Affine(0, 1), Affine(gap, unit), *copies), memory, Overlap.FULL
    )


DESKTOP = [gpu(3e-5, 1e-4, 6e9, 6.5e9), *[core(2.1e-3)] * 8]
H100 = [gpu(1e-5, 6e-6, 50e9, 50e9), *[core(2.1e-3)] * 12]


def random_part(seed: int) -> tuple[MachineDevice, list[float]]:
    """A device, and what 0, 1, 2, ... units take it at least: all plans are tried."""
    rng = random.Random(seed)
    if rng.random() < 0.4:
        one = core(rng.uniform(0.1, 3), rng.choice([0.0, rng.uniform(0, 1)]))
        return one, [one.model.total.time(x) for x in range(MOST + 1)]
    _, model, memory, overlap = random_case(seed, MOST)
    sizes = range(1, MOST + 1)
    best = [least_seconds(size, model, memory, overlap) for size in sizes]
    return MachineDevice("gpu", model, memory, overlap), [0.0, *best]


def best_makespan(load: int, times: list[list[float]]) -> float:
    splits = itertools.product(range(load + 1), repeat=len(times))
    return min(
        max(best[share] for best, share in zip(times, split, strict=True))
        for split in splits
        if sum(split) == load
    )


def test_both_bounds_are_never_above_the_best_of_all_splits_and_plans() -> None:
    for seed in range(CASES):
        rng = random.Random(seed)
        drawn = [random_part(1000 * seed + index) for index in range(rng.randint(1, 3))]
        parts, times = [part for part, _ in drawn], [best for _, best in drawn]
        load = rng.randint(1, MOST)
        best = best_makespan(load, times)
        assert whole_unit_bound(load, parts) <= best * (1 + 1e-9), seed
        assert fluid_bound(load, parts) <= best * (1 + 1e-9), seed


@pytest.mark.parametrize(("parts", "ms"), [(DESKTOP, 38.38), (H100, 8.66)])
def test_the_fluid_bounds_of_both_profiles_are_reproduced(
    parts: list[MachineDevice], ms: float
) -> None:
    assert round(1e3 * fluid_bound(256, parts), 2) == ms


def test_whole_units_and_pipelines_that_fill_cost_more_than_a_fluid() -> None:
    assert 1e3 * whole_unit_bound(256, DESKTOP) == pytest.approx(39.90, abs=0.005)
    assert 1e3 * whole_unit_bound(256, H100) == pytest.approx(9.376, abs=0.0005)


@pytest.mark.parametrize(
    ("overlap", "seconds"), [(Overlap.FULL, 3.0), (Overlap.SINGLE, 5.0), (Overlap.NONE, 6.0)]
)
def test_a_fluid_load_is_bound_by_the_busiest_engine(overlap: Overlap, seconds: float) -> None:
    model = DeviceModel(Affine(0, 1), Affine(5, 1), Affine(5, 2), Affine(5, 3))
    memory = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)
    assert fluid_bound(10, [MachineDevice("g", model, memory, overlap)]) == pytest.approx(
        10 * seconds
    )


def test_copies_that_slow_each_other_down_bound_a_fluid_too() -> None:
    model = DeviceModel(Affine(0, 1), Affine(0, 1), Affine(0, 2), Affine(0, 2), duplex=(0.5, 0.5))
    memory = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)
    assert fluid_bound(10, [MachineDevice("g", model, memory, Overlap.FULL)]) == pytest.approx(40)


def test_an_empty_load_takes_no_time_and_no_devices_are_refused() -> None:
    assert whole_unit_bound(0, DESKTOP) == fluid_bound(0, DESKTOP) == 0.0
    for bound in (whole_unit_bound, fluid_bound):
        with pytest.raises(UsageError, match="8 units for 0 devices"):
            bound(8, [])


def test_a_unit_that_fits_nowhere_and_half_a_link_are_refused() -> None:
    with pytest.raises(DataError, match="one unit needs"):
        whole_unit_bound(8, [gpu(1e-5, 1e-5, 1e9, 1e9, limit=PLANE)])
    with pytest.raises(UsageError, match="both memory and overlap"):
        MachineDevice("g", DESKTOP[0].model, None, Overlap.FULL)


@pytest.mark.parametrize("bound", [whole_unit_bound, fluid_bound])
def test_bounds_are_cached_by_value_and_follow_models_that_learn(bound: Any) -> None:
    learning = Affine(observations=[(10, 1e-3), (20, 2e-3)])
    model = DESKTOP[0].model
    part = replace(DESKTOP[0], model=replace(model, compute=learning))
    cache = PlanCache()
    before = bound(256, [part, *DESKTOP[1:]], cache=cache)
    assert bound(256, [replace(part, name="other"), *DESKTOP[1:]], cache=cache) == before
    assert len(cache.bounds) == 1
    for _ in range(9):
        learning.observe(10, 10e-3)
        learning.observe(20, 20e-3)
    assert bound(256, [part, *DESKTOP[1:]], cache=cache) > 1.2 * before
