"""`timeline` equals an independent, event-driven replay of the same operations."""

import random

import pytest
from pipeline_replay import replay

from hetsched.models import Affine, DeviceModel
from hetsched.plans import DevicePlan, Mode, Overlap, timeline

CASES = 150
"""For each number of copy engines."""


def random_plan(rng: random.Random) -> DevicePlan:
    if rng.random() < 0.5:
        chunks = tuple(rng.randint(1, 20) for _ in range(rng.randint(1, 14)))
        return DevicePlan((chunks,), Mode.RING, rng.randint(1, 5))
    return DevicePlan(
        tuple(
            tuple(rng.randint(1, 20) for _ in range(rng.randint(1, 6)))
            for _ in range(rng.randint(1, 4))
        )
    )


def random_model(rng: random.Random) -> DeviceModel:
    """PhaseCosts in whole seconds now and then, so that ends coincide."""

    def curve() -> Affine:
        if rng.random() < 0.3:
            return Affine(float(rng.randint(0, 2)), float(rng.randint(1, 4)))
        return Affine(rng.uniform(0, 3), 10 ** rng.uniform(-1.5, 1))

    h2d = None if rng.random() < 0.05 else curve()
    duplex = (rng.uniform(0.3, 1), rng.uniform(0.3, 1)) if rng.random() < 0.4 else (1.0, 1.0)
    return DeviceModel(Affine(0.0, 1.0), curve(), h2d, curve(), duplex=duplex)


def costs(plan: DevicePlan, model: DeviceModel) -> list[tuple[float, float, float]]:
    curves = (model.h2d, model.compute, model.d2h)
    rows = [tuple(curve.time(x) if curve else 0.0 for curve in curves) for x in plan.chunks]
    return [(row[0], row[1], row[2]) for row in rows]


def worst_difference(seed: int, overlap: Overlap) -> float:
    rng = random.Random(seed)
    plan, model = random_plan(rng), random_model(rng)
    predicted = timeline(plan, model, overlap)
    replayed = replay(plan, costs(plan, model), overlap, model.duplex)
    scale = max(predicted.makespan, 1.0)
    differences = [abs(predicted.makespan - max(end for _, end in replayed.values()))]
    for number, chunk in enumerate(predicted.chunks):
        phases = {"I": chunk.copy_in, "W": chunk.compute, "O": chunk.copy_out}
        for phase, span in phases.items():
            if span is not None:
                begin, end = replayed[phase, number]
                differences += [abs(span[0] - begin), abs(span[1] - end)]
    return max(differences) / scale


@pytest.mark.parametrize("overlap", list(Overlap))
def test_timeline_equals_the_replay_of_random_plans(overlap: Overlap) -> None:
    assert max(worst_difference(seed, overlap) for seed in range(CASES)) <= 1e-9
