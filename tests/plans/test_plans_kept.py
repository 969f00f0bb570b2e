"""When a device with a link keeps the chunks of its last run."""

from __future__ import annotations

import pytest

from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PhaseCurve, Polyline
from hetsched.plans import Overlap
from hetsched.plans.device_plan import DevicePlan, Mode
from hetsched.plans.kept_plan import adjusted, kept_plan

COPY = Affine(0.01, 0.01)
STEPPED = DeviceModel(Affine(0.0, 1.0), Polyline([(1, 1.0), (8, 8.0), (9, 16.0)]), COPY, COPY)
STRAIGHT = DeviceModel(Affine(0.0, 1.0), Affine(0.1, 1.0), COPY, COPY)
MEMORY = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1, limit=64)
BEST = DevicePlan(((4, 8, 4),), Mode.RING, 2)
AS_GOOD = DevicePlan(((4, 7, 5),), Mode.RING, 2)
SLOW = DevicePlan(((7, 9),), Mode.RING, 2)


def kept(last: DevicePlan | None, model: DeviceModel, memory: MemoryDemand = MEMORY) -> DevicePlan:
    return kept_plan(last, BEST, model, memory, Overlap.FULL)


def test_the_last_chunks_are_kept_if_the_best_ones_gain_little() -> None:
    assert kept(AS_GOOD, STEPPED) is AS_GOOD


def test_they_are_given_up_for_a_gain_or_for_a_share_far_from_theirs() -> None:
    assert kept(SLOW, STEPPED) is BEST
    assert kept(DevicePlan(((4, 8, 8),), Mode.RING, 2), STEPPED) is BEST
    assert kept(None, STEPPED) is BEST


@pytest.mark.parametrize("share", [63, 64, 66, 67])
def test_for_a_share_near_theirs_they_change_by_a_few_units(share: int) -> None:
    plan = adjusted(DevicePlan(((1, *(8,) * 8),), Mode.RING, 2), share, STEPPED, Overlap.FULL)

    assert plan is not None and plan.share == share
    assert set(plan.chunks) <= {1, 2, 3, 6, 7, 8}  # 9 units take twice as long as 8


def sized(seconds: dict[int, float], runs: dict[int, int]) -> DeviceModel:
    observations = [(x, t) for x, t in seconds.items() for _ in range(runs.get(x, 3))]
    return DeviceModel(Affine(0.0, 1.0), PhaseCurve(observations), COPY, COPY)


@pytest.mark.parametrize(("runs", "is_kept"), [(1, True), (6, False)])
def test_equal_chunks_of_a_size_run_once_must_gain_more(runs: int, is_kept: bool) -> None:
    last, best = (DevicePlan(((size,) * (48 // size),), Mode.RING, 2) for size in (6, 8))
    model = sized({1: 2.0, 4: 4.1, 6: 6.1, 8: 8.0, 9: 18.0, 16: 32.0}, {8: runs})

    plan = kept_plan(last, best, model, MEMORY, Overlap.FULL)

    assert (plan is last) == is_kept


def test_with_straight_lines_the_best_plan_is_used() -> None:
    assert kept(AS_GOOD, STRAIGHT) is BEST


def test_so_it_is_where_the_cost_of_a_call_describes_all_sizes() -> None:
    sizes = (1, 2, 3, 6, 9, 17, 28, 41, 64)
    calls = PhaseCurve((x, 0.4 * x.bit_count() + x) for x in sizes for _ in range(3))
    last, best = (DevicePlan(((size,) * (24 // size),), Mode.RING, 2) for size in (12, 8))
    model = DeviceModel(Affine(0.0, 1.0), calls, COPY, COPY)

    assert kept_plan(last, best, model, MEMORY, Overlap.FULL) is best


def test_a_plan_that_no_longer_fits_is_given_up() -> None:
    small = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1, limit=2)
    assert kept(AS_GOOD, STEPPED, small) is BEST
