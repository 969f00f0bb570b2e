"""Quickly found plans, and what the best plan costs as a function of the share."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.partition import geometric
from hetsched.planner import planned_total
from hetsched.plans import (
    DevicePlan,
    MemoryDemand,
    Mode,
    Overlap,
    check,
    quick_plan,
    timeline,
)
from hetsched.plans.search.recipes import Recipe

PLANE = 2 << 20
"""Bytes of a 512x512 complex64 plane."""


def memory(units: int) -> MemoryDemand:
    return MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=units)


def gpu(compute: Affine, rate_in: float, rate_out: float, **options: Any) -> DeviceModel:
    """A GPU behind a link of so many bytes a second; nothing measured as a whole."""
    h2d, d2h = Affine(10e-6, PLANE / rate_in), Affine(10e-6, PLANE / rate_out)
    return DeviceModel(options.pop("total", PiecewiseLinear()), compute, h2d, d2h, **options)


DESKTOP = gpu(Affine(30e-6, 100e-6), 6.0e9, 6.5e9)
H100 = gpu(Affine(10e-6, 6e-6), 50e9, 50e9)


def cores(count: int) -> list[Affine]:
    return [Affine(0.0, 2.1e-3)] * count


@pytest.mark.parametrize(("model", "count", "best"), [(DESKTOP, 8, 39.90e-3), (H100, 12, 9.38e-3)])
def test_the_machine_profiles_come_within_a_percent_of_the_best_plan_known(
    model: DeviceModel, count: int, best: float
) -> None:
    curve = planned_total(model, memory(256), Overlap.FULL, 256)
    shares = geometric([curve, *cores(count)], 256).shares
    plan = quick_plan(shares[0], model, memory(256), Overlap.FULL)
    makespan = max(timeline(plan, model, Overlap.FULL).makespan, max(shares[1:]) * 2.1e-3)
    assert makespan <= best * 1.01


def test_a_ring_of_one_unit_has_one_chunk() -> None:
    assert quick_plan(1, DESKTOP, memory(9), Overlap.FULL) == DevicePlan(((1,),), Mode.RING, 1)


def test_memory_for_one_unit_leaves_one_slot() -> None:
    plan = quick_plan(100, DESKTOP, memory(1), Overlap.FULL)
    assert (plan.slots, plan.chunks) == (1, (1,) * 100)


def test_a_unit_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(DataError, match="one unit needs"):
        quick_plan(1, DESKTOP, memory(0), Overlap.FULL)


def test_without_copy_engines_one_big_chunk_saves_the_fixed_costs() -> None:
    assert len(quick_plan(40, DESKTOP, memory(40), Overlap.NONE).chunks) == 1


slopes = st.floats(1e-5, 1e-3)
gaps = st.floats(0, 1e-4)
affines = st.builds(Affine, gaps, slopes)
duplexes = st.sampled_from([(1.0, 1.0), (0.8, 0.7)])


@given(
    st.integers(1, 600), st.integers(1, 300), st.tuples(affines, affines, affines), duplexes,
    st.sampled_from(Overlap),
)  # fmt: skip
def test_a_quick_plan_covers_the_share_fits_and_beats_one_chunk_at_a_time(
    share: int,
    room: int,
    curves: tuple[Affine, Affine, Affine],
    duplex: tuple[float, float],
    overlap: Overlap,
) -> None:
    model = DeviceModel(PiecewiseLinear(), *curves, duplex=duplex)
    plan = quick_plan(share, model, memory(room), overlap)
    check(plan, memory(room))
    assert plan.share == share
    rest = share % room
    serial = DevicePlan(((room,),) * (share // room) + (((rest,),) if rest else ()))
    limit = timeline(serial, model, overlap).makespan
    assert timeline(plan, model, overlap).makespan <= limit * 1.1


@given(st.integers(1, 300), st.integers(1, 100), st.tuples(affines, affines, affines))
def test_no_equal_ring_is_much_better(
    share: int, room: int, curves: tuple[Affine, Affine, Affine]
) -> None:
    model = DeviceModel(PiecewiseLinear(), *curves)
    best = timeline(quick_plan(share, model, memory(room), Overlap.FULL), model, Overlap.FULL)
    for chunks, slots in itertools.product((1, 2, 4, 7, 16), (2, 3, 4)):
        sizes = [share * k // chunks for k in range(chunks + 1)]
        equal = tuple(b - a for a, b in itertools.pairwise(sizes) if b > a)
        if max(equal) * slots <= room:
            plan = DevicePlan((equal,), Mode.RING, slots)
            assert best.makespan <= timeline(plan, model, Overlap.FULL).makespan * 1.05


def test_the_planned_total_is_what_plans_cost() -> None:
    curve = planned_total(DESKTOP, memory(100), Overlap.FULL, 400)
    for share in (1, 3, 17, 100, 250, 400):
        plan = quick_plan(share, DESKTOP, memory(100), Overlap.FULL)
        cost = timeline(plan, DESKTOP, Overlap.FULL).makespan
        assert curve.time(share) == pytest.approx(cost, rel=0.06)


def slower(total: PiecewiseLinear) -> DeviceModel:
    return gpu(Affine(30e-6, 100e-6), 6.0e9, 6.5e9, total=total)


def corrected_by(observed: list[tuple[float, float]], share: float = 200) -> float:
    """The correction at `share`, where each of `observed` took so many times the estimate."""
    plain = planned_total(DESKTOP, memory(100), Overlap.FULL, 400)
    total = PiecewiseLinear((units, factor * plain.time(units)) for units, factor in observed)
    curve = planned_total(slower(total), memory(100), Overlap.FULL, 400)
    return float(curve.time(share) / plain.time(share))


def test_the_planned_total_is_corrected_by_the_shares_measured() -> None:
    assert corrected_by([(200, 1.1)]) == pytest.approx(1.1, rel=0.02)
    assert corrected_by([(10, 1.0), (200, 1.2), (190, 1.2)]) == pytest.approx(1.2, rel=0.02)
    assert corrected_by([(800, 0.9)]) == pytest.approx(0.9, rel=0.1)


def test_no_run_corrects_it_by_more_than_a_quarter() -> None:
    assert corrected_by([(200, 20.0)]) == pytest.approx(1.25, rel=0.01)
    assert corrected_by([(200, 0.01)]) == pytest.approx(0.8, rel=0.01)


def test_old_shares_are_forgotten_whatever_their_size() -> None:
    old = [(300, 1.2)] * 5
    assert corrected_by([*old, (200, 1.0), (190, 1.0)]) == pytest.approx(1.2, rel=0.02)
    assert corrected_by([*old, (200, 1.0), (190, 1.0), (200, 1.0)]) == pytest.approx(1, rel=0.02)


def test_chunks_say_nothing_about_shares() -> None:
    compute = Affine(observations=[(200, 200e-4 + 30e-6), (20, 20e-4 + 30e-6)])
    model = DeviceModel(PiecewiseLinear([(200, 9.0)]), compute, DESKTOP.h2d, DESKTOP.d2h)
    plain = planned_total(DESKTOP, memory(100), Overlap.FULL, 400)
    curve = planned_total(model, memory(100), Overlap.FULL, 400)
    assert curve.time(200) == pytest.approx(plain.time(200), rel=0.01)


@pytest.mark.parametrize("share", [1, 4, 5, 6, 11, 15, 16, 23])
def test_a_pattern_is_repeated_until_the_share_is_cut(share: int) -> None:
    sizes = (3, 2) * share

    chunks = Recipe((3, 2), slots=2).chunks(share)

    assert chunks[:-1] == sizes[: len(chunks) - 1]
    assert 0 < chunks[-1] <= sizes[len(chunks) - 1]
    assert sum(chunks) == share
