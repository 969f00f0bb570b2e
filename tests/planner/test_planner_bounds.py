from __future__ import annotations

import itertools
import random

import pytest
from every_plan import least_seconds, random_case

from hetsched.device import DeviceInfo
from hetsched.explain import Explanation
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.planner.explanation import LeastSeconds, explain_job, machine_bound
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Candidate, JobPlan
from hetsched.plans.bounds import ShareBounds

CASES, MOST = 20, 6


def random_part(seed: int) -> tuple[LeastSeconds, list[float]]:
    """A device, and what 0, 1, 2, ... units take it at least: all plans are tried."""
    rng = random.Random(seed)
    if rng.random() < 0.4:
        curve = Affine(rng.choice([0.0, rng.uniform(0, 1)]), rng.uniform(0.1, 3))
        return curve.time, [0.0, *(float(curve.time(x)) for x in range(1, MOST + 1))]
    _, model, memory, overlap = random_case(seed, MOST)
    best = [least_seconds(size, model, memory, overlap) for size in range(1, MOST + 1)]
    return ShareBounds(MOST, model, memory, overlap).seconds, [0.0, *best]


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
        bound = machine_bound(load, [curve.time for curve in curves])
        assert bound == pytest.approx(best_makespan(load, times))


UNIT = 1024
ROUNDING = 1e-9


def gpu(rng: random.Random, name: str) -> Candidate:
    limit = 2 * UNIT * rng.randint(3, 400)
    phases = [Affine(rng.uniform(0, 1e-4), 10 ** rng.uniform(-5, -4)) for _ in range(3)]
    info = DeviceInfo(
        name=name, kind="cuda", identity="g", link=True, memory=limit, engines=rng.randint(0, 2)
    )
    model = DeviceModel(PiecewiseLinear(), phases[0], phases[1], phases[2])
    demand = MemoryDemand(input_bytes=UNIT, work_bytes=0, output_bytes=UNIT, limit=limit)
    return Candidate(info, demand, {"v": model}, {"v": 9})


def core(rng: random.Random, name: str) -> Candidate:
    unit = 10 ** rng.uniform(-4.5, -3)
    total = PiecewiseLinear([(size, size * unit * rng.uniform(0.9, 1.1)) for size in (4, 64)])
    info = DeviceInfo(name=name, kind="cpu", identity="c")
    demand = MemoryDemand(input_bytes=UNIT, work_bytes=0, output_bytes=UNIT)
    return Candidate(info, demand, {"v": DeviceModel(total, total)}, {"v": 9})


def measured(candidate: Candidate, plan: JobPlan, factor: float) -> Candidate:
    """The candidate after three runs of its share in `plan`, `factor` times as slow as planned."""
    shares = {a.device: a for a in plan.assignments}
    assignment = shares.get(candidate.info.name)
    model = candidate.models["v"]
    if assignment is None or model is None or assignment.predicted_seconds is None:
        return candidate
    runs = [(assignment.plan.share, factor * assignment.predicted_seconds)] * 3
    changed = DeviceModel(PiecewiseLinear(runs), model.compute, model.h2d, model.d2h)
    return Candidate(candidate.info, candidate.demand, {"v": changed}, {"v": 9})


def explained(seed: int) -> tuple[JobPlan, Explanation]:
    rng = random.Random(seed)
    load = rng.randint(20, 400)
    linked = [gpu(rng, f"gpu{number}") for number in range(rng.randint(1, 2))]
    cores = [core(rng, f"cpu{number}") for number in range(rng.randint(0, 2))]
    first = plan_job(load, [*linked, *cores])
    slower = [measured(candidate, first, rng.uniform(0.5, 2.0)) for candidate in linked]
    plan = plan_job(load, [*slower, *cores])
    return plan, explain_job(
        Explanation(job=None, state="planned", workload="toy", load=load), plan
    )


@pytest.mark.parametrize("seed", range(12))
def test_no_bound_exceeds_the_prediction_that_it_is_shown_with(seed: int) -> None:
    plan, explanation = explained(seed)
    predicted = explanation.predicted_seconds
    assert predicted is not None and predicted == plan.predicted_seconds
    assert explanation.bound is not None
    assert explanation.bound <= predicted * (1 + ROUNDING)
    for device in explanation.devices:
        if device.bound is not None:
            assert device.predicted_seconds is not None
            assert device.bound <= device.predicted_seconds * (1 + ROUNDING)
            assert all(
                device.bound <= alternative.seconds * (1 + ROUNDING)
                for alternative in device.alternatives
            )
