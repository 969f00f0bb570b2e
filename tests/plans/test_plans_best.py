"""The best plan: exact for few units, near the bound for many, never worse than another kind."""

import itertools
import random
from typing import Any

import pytest
from every_plan import least_seconds, random_case
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError, UsageError
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.plans import (
    DevicePlan,
    MemoryDemand,
    Mode,
    Overlap,
    best_plan,
    check,
    compare_plans,
    timeline,
)
from hetsched.plans.best_plan import quick_plan
from hetsched.plans.paper.factoring import factoring
from hetsched.plans.paper.multi_installment import multi_installment, paper_steps
from hetsched.plans.phase_costs import costs_of
from hetsched.plans.search.exhaustive import best_installments


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


@pytest.mark.parametrize(("cases", "max_units"), [(150, 6), (60, 8), (12, 10)])
def test_small_loads_have_the_best_of_all_plans(cases: int, max_units: int) -> None:
    """Exact in 95 % at least, within 3 % in all: slots have places, which neighbours needn't."""
    inexact = 0
    for seed in range(cases):
        share, model, memory, overlap = random_case(1000 * max_units + seed, max_units)
        comparison = compare_plans(share, model, memory, overlap=overlap)
        check(comparison.plan, memory)
        assert comparison.plan.share == share
        best = least_seconds(share, model, memory, overlap)
        inexact += comparison.seconds > best * (1 + 1e-9)
        assert best * (1 - 1e-9) <= comparison.seconds <= best * 1.03, seed
        assert comparison.bound <= best * (1 + 1e-9), seed
    assert inexact <= cases // 20


@pytest.mark.parametrize(
    ("room", "halved", "steps_seconds"), [(112, 24.741, 29.456), (16, 26.183, 30.605)]
)
def test_a_link_bound_device_is_kept_busy_whatever_its_memory(
    room: int, halved: float, steps_seconds: float
) -> None:
    """At most 16.50, where factoring by two and the paper's steps alone take much longer."""
    link = Affine(0.010, 0.076)
    model = DeviceModel(Affine(0.0, 1.0), Affine(0.020, 0.011), link, link)
    comparison = compare_plans(205, model, memory(room), overlap=Overlap.FULL)
    steps = timeline(paper_steps(205, model, memory(room), overlap=Overlap.FULL), model,
                     Overlap.FULL).makespan  # fmt: skip
    assert comparison.seconds <= 16.50
    assert (comparison.seconds_by_kind["factoring"], steps) == (
        pytest.approx(halved),
        pytest.approx(steps_seconds),
    )
    assert comparison.gap < 1e-3


def device(rng: random.Random) -> DeviceModel:
    i, w, o = (Affine(rng.uniform(5e-6, 30e-6), 10 ** rng.uniform(-5, -3.5)) for _ in range(3))
    return DeviceModel(Affine(0.0, 1.0), w, i, o)


@pytest.mark.parametrize("seed", range(8))
def test_no_ring_of_equal_chunks_beats_it(seed: int) -> None:
    rng = random.Random(seed)
    share, room, model = rng.randint(64, 500), rng.randint(8, 500), device(rng)
    overlap = rng.choice([Overlap.SINGLE, Overlap.FULL])
    plan = best_plan(share, model, memory(room), overlap=overlap)
    check(plan, memory(room))
    seconds = timeline(plan, model, overlap).makespan
    for chunks, slots in itertools.product(range(1, min(64, share) + 1), (1, 2, 3, 4)):
        ends = [share * k // chunks for k in range(chunks + 1)]
        sizes = tuple(b - a for a, b in itertools.pairwise(ends))
        if max(sizes) * slots <= room:
            equal = timeline(DevicePlan((sizes,), Mode.RING, slots), model, overlap)
            assert seconds <= equal.makespan * (1 + 1e-9)


@given(
    st.integers(1, 300), st.integers(1, 200), st.integers(0, 1000), st.sampled_from(Overlap),
    st.sampled_from([(1.0, 1.0), (0.7, 0.6)]),
)  # fmt: skip
def test_it_covers_the_share_fits_and_is_never_worse_than_another_kind(
    share: int, room: int, seed: int, overlap: Overlap, duplex: tuple[float, float]
) -> None:
    plain = device(random.Random(seed))
    model = DeviceModel(plain.total, plain.compute, plain.h2d, plain.d2h, duplex=duplex)
    comparison = compare_plans(share, model, memory(room), overlap=overlap)
    check(comparison.plan, memory(room))
    assert comparison.plan.share == share
    other_kinds = [
        factoring(share, memory(room)),
        multi_installment(share, model, memory(room), overlap=overlap),
    ]
    for plan in other_kinds:
        assert comparison.seconds <= timeline(plan, model, overlap).makespan * (1 + 1e-9)
    assert comparison.bound <= comparison.seconds * (1 + 1e-9)


def test_curves_that_take_only_numbers_get_the_same_plan() -> None:
    scalar_model = DeviceModel(*(PerUnit(0.5, slope) for slope in (6, 3, 1, 2)))
    array_model = DeviceModel(*(Affine(0.5, slope) for slope in (6.0, 3.0, 1.0, 2.0)))
    plans = [
        best_plan(70, m, memory(20), overlap=Overlap.FULL) for m in (scalar_model, array_model)
    ]
    assert plans[0] == plans[1]


def test_a_device_without_a_link_computes_everything_at_once() -> None:
    core = DeviceModel(Affine(1.0, 2.0), Affine(1.0, 2.0))
    assert best_plan(40, core, memory(None), overlap=Overlap.FULL).chunks == (40,)


def test_installments_of_few_units_add_up() -> None:
    costs = costs_of(DeviceModel(*(PerUnit(0, 1) for _ in range(4))), 4)
    best = best_installments(4, costs, memory(2), Overlap.FULL)
    assert best == (8.0, DevicePlan(((1, 1), (1, 1))))


def test_an_odd_memory_is_filled_by_a_pattern() -> None:
    link = Affine(0.5, 1.0)
    model = DeviceModel(Affine(0.0, 1.0), Affine(0.1, 0.1), link, link)
    plan = best_plan(100, model, memory(5), overlap=Overlap.FULL)
    middle, slots = plan.chunks[4:-4], plan.slots
    assert slots > 1
    assert {sum(middle[i : i + slots]) for i in range(len(middle) - slots)} == {5}


def test_curves_of_a_single_point_and_one_way_links_have_plans() -> None:
    measured = DeviceModel(*(PiecewiseLinear([(10, seconds)]) for seconds in (6.0, 3.0, 1.0, 2.0)))
    inward = DeviceModel(measured.total, measured.compute, measured.h2d)
    outward = DeviceModel(measured.total, measured.compute, d2h=measured.d2h)
    for model, serial in ((measured, 24.0), (inward, 16.0), (outward, 20.0)):
        for overlap in Overlap:
            comparison = compare_plans(40, model, memory(20), overlap=overlap)
            check(comparison.plan, memory(20))
            assert comparison.plan.share == 40
            assert 12.0 <= comparison.bound <= comparison.seconds <= serial * (1 + 1e-9)


def test_nothing_has_a_plan_of_nothing() -> None:
    assert best_plan(0, device(random.Random(0)), memory(0), overlap=Overlap.FULL).chunks == ()


def test_invalid_requests_are_errors() -> None:
    model = device(random.Random(0))
    with pytest.raises(UsageError, match="-1 units is negative"):
        best_plan(-1, model, memory(1), overlap=Overlap.FULL)
    with pytest.raises(DataError, match="one unit needs"):
        best_plan(1, model, memory(0), overlap=Overlap.FULL)


@pytest.mark.parametrize("overlap", list(Overlap))
def test_bytes_need_not_grow_with_size(overlap: Overlap) -> None:
    """The largest chunk of a slot may need less than the others that come into it."""
    for seed in range(30):
        rng = random.Random(seed)
        share, period, large = rng.choice([7, 30, 130]), rng.randint(2, 4), rng.randint(1, 60)
        odd = rng.randrange(period)
        odd = 0 if odd == 1 else odd  # one unit fits

        def area(units: int, period: int = period, odd: int = odd, large: int = large) -> int:
            return large if units % period == odd else 1

        demand = MemoryDemand(
            input_bytes=1, work_bytes=area, output_bytes=0, limit=rng.randint(4, 60),
            work=rng.choice(["sum", "max"]),
        )  # fmt: skip
        model = device(rng)
        for plan in (
            best_plan(share, model, demand, overlap=overlap),
            quick_plan(share, model, demand, overlap),
            multi_installment(share, model, demand, overlap=overlap),
            compare_plans(share, model, demand, overlap=overlap).plan,
        ):
            check(plan, demand)
            assert plan.share == share
