"""What plans cost: by an independent, event-driven replay, and by hand."""

import random

import pytest
from pipeline_replay import replay

from hetsched.models import Affine, DeviceModel
from hetsched.plans import DevicePlan, Mode, Overlap, Timeline, price, timeline
from hetsched.plans.costs import costs_of
from hetsched.plans.recurrence import prices

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


def model(i: float, w: float, o: float, duplex: tuple[float, float] = (1.0, 1.0)) -> DeviceModel:
    return DeviceModel(*(Affine(0.0, slope) for slope in (i + w + o, w, i, o)), duplex=duplex)


def plan(*chunks: int, slots: int = 0) -> DevicePlan:
    return DevicePlan((chunks,), Mode.RING if slots else Mode.INSTALLMENTS, slots)


LINK_BOUND = model(2, 1, 3)


@pytest.mark.parametrize(
    ("chunks", "single", "full"),
    [((6,), 36, 36), ((3, 3), 30, 27), ((2, 2, 2), 30, 24), ((1,) * 6, 30, 21)],
)
def test_link_bound_plans_gain_from_a_second_engine(
    chunks: tuple[int, ...], single: float, full: float
) -> None:
    assert timeline(plan(*chunks), LINK_BOUND, Overlap.SINGLE).makespan == single
    assert timeline(plan(*chunks), LINK_BOUND, Overlap.FULL).makespan == full


def test_nothing_takes_no_time() -> None:
    assert timeline(DevicePlan(()), LINK_BOUND, Overlap.FULL) == Timeline(0.0, ())


def test_copies_at_once_keep_only_their_share_of_their_pace() -> None:
    """In at half, out at a quarter of their pace while both run."""
    times = timeline(plan(1, 1), model(2, 1, 3, (0.5, 0.25)), Overlap.FULL)
    first, second = times.chunks
    # I1 0-2, I2 2-4 alone until O1 starts at 3: one of its two seconds is left, at half pace until
    # 5; O1 did half a second of its three by then, and goes on alone.
    assert (first.copy_in, second.copy_in) == ((0, 2), (2, 5))
    assert first.copy_out == (3, 7.5)
    assert times.makespan == 10.5


@pytest.mark.parametrize("overlap", list(Overlap))
def test_many_plans_at_once_cost_what_each_of_them_does(overlap: Overlap) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        device = random_model(rng)
        device = DeviceModel(device.total, device.compute, device.h2d, device.d2h)
        chunks = [[rng.randint(1, 20) for _ in range(rng.randint(1, 12))] for _ in range(5)]
        slots = [rng.randint(0, 5) for _ in chunks]
        batch = prices(chunks, slots, costs_of(device, 20, overlap), overlap)
        for sizes, count, seconds in zip(chunks, slots, batch.tolist(), strict=True):
            each = plan(*sizes, slots=count)
            assert seconds == pytest.approx(price(each, device, overlap), rel=1e-9)
