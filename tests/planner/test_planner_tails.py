"""The size of shared tails, and plans with them."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_devices import FAST, core, gpu, units

from hetsched.planner.assignment import MAX_CORE_CHUNKS
from hetsched.planner.job_planner import Candidate, JobPlan, plan_job
from hetsched.planner.tails import CoreShare, expected_takes, plan_tails, pooled_fraction


def varying(index: int, seconds: float, variation: float, process: str = "cpu0") -> Candidate:
    plain = core(index, seconds)
    model = plain.models["fft"]
    assert model is not None
    return replace(
        plain,
        info=msgspec.structs.replace(plain.info, tail_group=process),
        models={"fft": replace(model, variation=variation)},
    )


def tail_units(plan: JobPlan) -> list[int]:
    tails = {(a.tail.first, a.tail.units) for a in plan.assignments if a.tail is not None}
    return [unit for first, count in sorted(tails) for unit in range(first, first + count)]


@pytest.mark.parametrize(
    ("variation", "fraction"), [(0.0, 0.0), (0.009, 0.0), (0.02, 0.05), (0.1, 0.25), (0.4, 0.5)]
)
def test_the_fraction_follows_the_variation(variation: float, fraction: float) -> None:
    assert pooled_fraction(variation) == pytest.approx(fraction)


def test_without_variation_nothing_is_pooled() -> None:
    plan = plan_job(256, [varying(i, 1e-3, 0.0) for i in range(4)])
    assert [(a.tail, a.pooled, a.own_units) for a in plan.assignments] == [(None, 0, 64)] * 4


def test_a_quarter_of_the_shares_is_pooled_behind_all_others() -> None:
    plan = plan_job(256, [varying(0, 1e-3, 0.1), varying(1, 3e-3, 0.02)])
    assert [a.plan.share for a in plan.assignments] == [192, 64]
    assert [a.own_units for a in plan.assignments] == [144, 48]
    assert units(plan) == list(range(192))
    assert tail_units(plan) == list(range(192, 256))
    fast, slow = (a.tail for a in plan.assignments)
    assert fast is not None
    assert slow is not None
    assert (fast.weight, slow.weight) == pytest.approx((0.75, 0.25))
    assert (fast.least, fast.most, slow.least) == (1, 80, 1)


def test_the_plan_shows_the_chunks_that_a_punctual_core_takes() -> None:
    (assignment, _) = plan_job(256, [varying(i, 1e-3, 0.1) for i in range(2)]).assignments
    assert assignment.plan.chunks[-6:] == (16, 8, 4, 2, 1, 1)
    assert assignment.plan.share == 128
    assert assignment.max_chunk >= 16


def test_cores_of_different_processes_share_no_tail() -> None:
    processes = ["cpu0", "cpu0", "big0", "big0"]
    plan = plan_job(400, [varying(i, 1e-3, 0.1, p) for i, p in enumerate(processes)])
    firsts = [a.tail.first for a in plan.assignments if a.tail is not None]
    assert firsts[0] == firsts[1] != firsts[2] == firsts[3]
    assert units(plan) + tail_units(plan) == list(range(400))


def test_a_device_with_a_link_a_trial_and_a_single_core_pool_nothing() -> None:
    plan = plan_job(256, [gpu(FAST), varying(0, 2e-3, 0.2)])
    assert all(a.tail is None for a in plan.assignments)
    explorer = replace(varying(1, 1e-3, 0.2), models={"new": None}, run_counts={"new": 0})
    plan = plan_job(64, [varying(0, 1e-3, 0.2), explorer])
    assert all(a.tail is None for a in plan.assignments)


def test_a_core_that_is_only_probed_takes_no_part() -> None:
    shares = {"cpu0": 127, "cpu1": 127, "cpu2": 2}
    plan = plan_job(256, [varying(i, 1e-3, 0.1) for i in range(3)], shares)
    assert [assignment.tail is None for assignment in plan.assignments] == [False, False, True]


def test_a_job_of_few_milliseconds_has_no_tail() -> None:
    assert plan_job(8, [varying(i, 1e-4, 0.2) for i in range(2)]).assignments[0].tail is None


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.floats(1e-6, 1.0)), min_size=1, max_size=8),
    st.floats(0.0, 1.0),
)
def test_every_core_keeps_a_unit_and_takes_what_it_pooled(
    cores: list[tuple[int, float]], variation: float
) -> None:
    shares = [
        CoreShare(f"cpu{i}", "cpu0", count, count * pace, variation, 1 << 20)
        for i, (count, pace) in enumerate(cores)
    ]
    tails = plan_tails(shares, 10**6)
    for share in shares:
        if share.name in tails:
            pooled = tails[share.name]
            assert share.units > pooled.units
            assert sum(expected_takes(pooled)) == pooled.units
            assert pooled.part.first + pooled.part.units == 10**6


def test_the_number_of_expected_takes_is_bounded_in_a_job_of_weeks() -> None:
    plan = plan_job(10**10, [varying(i, 1e-3, 0.15) for i in range(2)])

    assert all(len(a.plan.chunks) < 2 * MAX_CORE_CHUNKS for a in plan.assignments)
    assert plan.load == 10**10
