import random

import pytest
from every_plan import least_seconds

from hetsched.errors import DataError
from hetsched.models import Affine, DeviceModel
from hetsched.plans import (
    MemoryDemand,
    Overlap,
    best_plan,
    lower_bound,
    timeline,
)

CASES, MOST = 80, 7


def memory(units: int | None) -> MemoryDemand:
    return MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=units)


def affine(i: float, w: float, o: float, gap: float = 0.0) -> DeviceModel:
    return DeviceModel(Affine(0.0, 1.0), Affine(gap, w), Affine(gap, i), Affine(gap, o))


def test_nor_where_memory_holds_two_chunks_or_three() -> None:
    """Cheap copies beside long gaps: there it is the moments without any chunk that bound."""
    for seed in range(60):
        rng = random.Random(seed)
        costs = [(rng.uniform(0, 1), 10 ** rng.uniform(-1.5, 0)) for _ in range(4)]
        model = DeviceModel(*(Affine(gap, slope) for gap, slope in costs))
        share, overlap = rng.randint(5, 7), rng.choice([Overlap.SINGLE, Overlap.FULL])
        room = memory(rng.randint(2, 4))
        best = least_seconds(share, model, room, overlap)
        assert lower_bound(share, model, room, overlap) <= best * (1 + 1e-9), seed


def us(i: tuple[float, float], w: tuple[float, float], o: tuple[float, float]) -> DeviceModel:
    """Gap and slope of each phase in microseconds."""
    c_in, compute, c_out = (Affine(gap * 1e-6, slope * 1e-6) for gap, slope in (i, w, o))
    return DeviceModel(Affine(0.0, 1.0), compute, c_in, c_out)


@pytest.mark.parametrize(
    ("share", "room", "overlap", "model", "max_gap"),
    [
        (1881, 5, Overlap.SINGLE, us((11.6, 16.7), (11.5, 15.3), (17.9, 6.1)), 0.005),
        (699, 5, Overlap.FULL, us((26.1, 13.3), (6.8, 7.8), (24.4, 14.0)), 0.03),
        (626, 9, Overlap.SINGLE, us((22.8, 17.5), (28.5, 11.1), (24.0, 10.0)), 0.005),
        (340, 22, Overlap.SINGLE, us((17.8, 6.8), (17.3, 5.5), (23.3, 6.5)), 0.01),
        (144, 77, Overlap.FULL, us((17.0, 10.8), (8.4, 6.6), (15.1, 10.6)), 0.01),
        (97, 13, Overlap.SINGLE, us((0.0, 1.0), (0.0, 9.0), (0.0, 1.0)), 0.01),
    ],
)
def test_where_memory_is_tight_it_is_near_what_plans_take(
    share: int, room: int, overlap: Overlap, model: DeviceModel, max_gap: float
) -> None:
    plan = best_plan(share, model, memory(room), overlap=overlap)
    seconds = timeline(plan, model, overlap).makespan
    bound = lower_bound(share, model, memory(room), overlap)
    assert bound <= seconds <= bound * (1 + max_gap)


def test_an_empty_load_takes_no_time_and_a_load_that_does_not_fit_is_an_error() -> None:
    assert lower_bound(0, affine(1, 1, 1), memory(0), Overlap.FULL) == 0.0
    with pytest.raises(DataError, match="one unit needs"):
        lower_bound(1, affine(1, 1, 1), memory(0), Overlap.FULL)
