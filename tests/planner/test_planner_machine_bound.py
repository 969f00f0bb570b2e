import itertools
import random

import pytest
from every_plan import least_seconds, random_case

from hetsched.models import Affine
from hetsched.planner.machine_bound import LeastSeconds, core_bound, linked_bound, machine_bound

CASES, MOST = 20, 6


def random_part(seed: int) -> tuple[LeastSeconds, list[float]]:
    """A device, and what 0, 1, 2, ... units take it at least: all plans are tried."""
    rng = random.Random(seed)
    if rng.random() < 0.4:
        curve = Affine(rng.choice([0.0, rng.uniform(0, 1)]), rng.uniform(0.1, 3))
        return core_bound(curve), [0.0, *(float(curve.time(x)) for x in range(1, MOST + 1))]
    _, model, memory, overlap = random_case(seed, MOST)
    best = [least_seconds(size, model, memory, overlap) for size in range(1, MOST + 1)]
    return linked_bound(MOST, model, memory, overlap), [0.0, *best]


def best_makespan(load: int, times: list[list[float]]) -> float:
    splits = itertools.product(range(load + 1), repeat=len(times))
    return min(
        max(best[share] for best, share in zip(times, split, strict=True))
        for split in splits
        if sum(split) == load
    )


def test_the_bound_is_never_above_the_best_of_all_splits_and_plans() -> None:
    for seed in range(CASES):
        rng = random.Random(seed)
        drawn = [random_part(1000 * seed + index) for index in range(rng.randint(1, 3))]
        parts, times = [part for part, _ in drawn], [best for _, best in drawn]
        load = rng.randint(1, MOST)
        assert machine_bound(load, parts) <= best_makespan(load, times) * (1 + 1e-9), seed


def test_the_bound_of_cores_is_the_best_split() -> None:
    curves = [Affine(0.3, 1.0), Affine(0.1, 0.7), Affine(0.0, 2.2)]
    times = [[0.0, *(float(curve.time(x)) for x in range(1, MOST + 1))] for curve in curves]
    for load in range(1, MOST + 1):
        bound = machine_bound(load, [core_bound(curve) for curve in curves])
        assert bound == pytest.approx(best_makespan(load, times))
