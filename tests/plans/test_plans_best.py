import random
from typing import Any

import pytest
from every_plan import least_seconds, random_case
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.learning.plans import MAX_GAPS, draw, verdicts
from hetsched.errors import DataError
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.plans import (
    DevicePlan,
    MemoryDemand,
    Mode,
    Overlap,
    best_plan,
    check,
    factoring,
    lower_bound,
    multi_installment,
    price,
    timeline,
)
from hetsched.plans.costs import MAX_GRANULES
from hetsched.plans.device_plan import evenly
from hetsched.plans.slots import slotted

SLACK = 0.005
"""Rings only are searched; other kinds of plans are hardly ever faster, and then by little."""


def memory(units: int | None) -> MemoryDemand:
    return MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=units)


class PerUnit:
    """A curve of somebody else: scalars only."""

    def __init__(self, gap: float, seconds: float) -> None:
        self._gap, self._seconds = gap, seconds

    def time(self, x: Any) -> float:
        return self._gap + float(x) * self._seconds

    def speed(self, x: Any) -> float:
        return float(x) / self.time(x)


@pytest.mark.parametrize(("cases", "max_units"), [(150, 6), (30, 8)])
def test_small_loads_are_planned_nearly_as_well_as_by_the_best_of_all_plans(
    cases: int, max_units: int
) -> None:
    gaps = []
    for seed in range(cases):
        share, model, memory, overlap = random_case(1000 * max_units + seed, max_units)
        plan = best_plan(share, model, memory, overlap=overlap)
        check(plan, memory)
        assert plan.share == share
        seconds, best = price(plan, model, overlap), least_seconds(share, model, memory, overlap)
        assert lower_bound(share, model, memory, overlap) <= best * (1 + 1e-9), seed
        gaps.append(seconds / best - 1)
    assert min(gaps) >= -1e-9
    assert sum(gaps) / cases <= 0.005
    assert max(gaps) <= 0.12


def device(rng: random.Random) -> DeviceModel:
    i, w, o = (Affine(rng.uniform(5e-6, 30e-6), 10 ** rng.uniform(-5, -3.5)) for _ in range(3))
    return DeviceModel(Affine(0.0, 1.0), w, i, o)


@given(
    st.integers(1, 300), st.integers(1, 200), st.integers(0, 1000), st.sampled_from(Overlap),
    st.sampled_from([(1.0, 1.0), (0.7, 0.6)]),
)  # fmt: skip
def test_it_covers_the_share_fits_and_is_never_worse_than_another_kind(
    share: int, room: int, seed: int, overlap: Overlap, duplex: tuple[float, float]
) -> None:
    plain = device(random.Random(seed))
    model = DeviceModel(plain.total, plain.compute, plain.h2d, plain.d2h, duplex=duplex)
    best = best_plan(share, model, memory(room), overlap=overlap)
    check(best, memory(room))
    assert best.share == share
    seconds = price(best, model, overlap)
    other_kinds = [
        factoring(share, memory(room)),
        multi_installment(share, model, memory(room), overlap=overlap),
    ]
    for plan in other_kinds:
        assert seconds <= price(plan, model, overlap) * (1 + SLACK)
    assert lower_bound(share, model, memory(room), overlap) <= seconds * (1 + 1e-9)


def test_curves_that_take_only_numbers_get_the_same_plan() -> None:
    scalar_model = DeviceModel(*(PerUnit(0.5, slope) for slope in (6, 3, 1, 2)))
    array_model = DeviceModel(*(Affine(0.5, slope) for slope in (6.0, 3.0, 1.0, 2.0)))
    plans = [
        best_plan(70, m, memory(20), overlap=Overlap.FULL) for m in (scalar_model, array_model)
    ]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("decades", MAX_GAPS, ids=["planes", "rows"])
def test_random_devices_are_near_the_bound(decades: tuple[float, float]) -> None:
    found = verdicts([draw(seed, decades) for seed in range(40)], decades)
    assert [verdict.cells() for verdict in found if not verdict.holds] == []


PLANE = 2 << 20
"""Bytes of a 512x512 complex64 plane."""


def test_copies_that_slow_each_other_are_planned_for() -> None:
    """No plan of equal chunks is faster where both directions keep 0.8 and 0.9 of their pace."""
    copy = Affine(10e-6, PLANE / 50e9)
    kernel = Affine(10e-6, 6e-6)
    model = DeviceModel(PiecewiseLinear(), kernel, copy, copy, duplex=(0.8, 0.9))
    for share in (64, 205):
        best = best_plan(share, model, memory(64), overlap=Overlap.FULL)
        seconds = price(best, model, Overlap.FULL)
        for chunks in range(4, 33):
            equal = DevicePlan((evenly(share, chunks),), Mode.RING, 3)
            if max(equal.chunks) * 3 <= 64:
                assert seconds <= price(equal, model, Overlap.FULL) * 1.002


CASES, MOST = 80, 7


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


# ---- shares of very many units


def small_units(seed: int) -> tuple[DeviceModel, Overlap]:
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
    model, overlap = small_units(seed)
    share, room = rng.randint(10**5, 10**8), rng.randint(2 * MAX_GRANULES, 10**7)
    memory = slotted(room_for(room))
    for plan in (
        best_plan(share, model, memory, overlap=overlap),
        multi_installment(share, model, memory, overlap=overlap),
    ):
        assert plan.share == share
        check(plan, memory)


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_of_many_chunks_is_as_good_as_one_of_few(seed: int) -> None:
    """It is searched at a shorter share; its steady middle takes as long per unit."""
    model, overlap = small_units(seed)
    memory = slotted(room_for(random.Random(seed).randint(40, 300) * 32))
    paces = [
        price(best_plan(share, model, memory, overlap=overlap), model, overlap) / share
        for share in (10**5, 10**6 + seed)
    ]
    assert paces[1] <= 1.001 * paces[0]
