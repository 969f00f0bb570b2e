import math
import random

import pytest

from hetsched.devices.accelerator.engines import Engines, Operation
from hetsched.models import Affine, DeviceModel
from hetsched.plans import DevicePlan, Mode, Overlap, Timeline, timeline

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


def emulated(plan: DevicePlan, model: DeviceModel, overlap: Overlap) -> list[list[Operation]]:
    """Copy in, computation and copy out of each chunk, on the engines of emulated devices."""
    engines = Engines({Overlap.NONE: 0, Overlap.SINGLE: 1, Overlap.FULL: 2}[overlap], model.duplex)
    is_in_turn = overlap is Overlap.NONE or plan.slots == 1
    rows: list[list[Operation]] = []
    seconds = costs(plan, model)
    for chunks in plan.sub_distributions:
        first, slots = len(rows), plan.slots or len(chunks)
        for number in range(first, first + len(chunks)):
            before = [rows[k][2] for k in (first - 1, number - slots) if k >= 0]
            copy_in = Operation("h2d", seconds[number][0], after=before)
            compute = Operation("compute", seconds[number][1], after=[copy_in])
            copy_out = Operation("d2h", seconds[number][2], after=[compute])
            engines.issue(copy_in)
            engines.issue(compute)
            if is_in_turn:
                engines.issue(copy_out)
            elif number > first:  # I1 I2 O1 I3 O2 ...
                engines.issue(rows[-1][2])
            rows.append([copy_in, compute, copy_out])
        if not is_in_turn:
            engines.issue(rows[-1][2])
    list(engines.advance(math.inf))
    return rows


@pytest.mark.parametrize("overlap", list(Overlap))
def test_emulated_devices_take_the_times_of_random_plans(overlap: Overlap) -> None:
    for seed in range(CASES):
        rng = random.Random(seed)
        plan, model = random_plan(rng), random_model(rng)
        rows, predicted = emulated(plan, model, overlap), timeline(plan, model, overlap)
        for row, chunk in zip(rows, predicted.chunks, strict=True):
            spans = (chunk.copy_in, chunk.compute, chunk.copy_out)
            for operation, span in zip(row, spans, strict=True):
                ran = (operation.started, operation.ended)
                assert span is None or ran == pytest.approx(span, rel=1e-9, abs=1e-9), seed
        assert predicted.makespan == pytest.approx(max(row[2].ended or 0.0 for row in rows))


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
