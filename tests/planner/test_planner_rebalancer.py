"""The Rebalancer: when it needs candidates, and when it repeats its last plan."""

from __future__ import annotations

import pytest

from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.planner.job_planner import Candidate, JobPlan
from hetsched.planner.rebalancing.rebalancer import MAX_REPEATS, Rebalancer

LOAD = 4000
NAMES = ("cpu0", "cpu1")


def candidates(*paces: float | None) -> list[Candidate]:
    """Cores that take so many seconds per unit; None: unmeasured."""
    return [
        Candidate(
            info=DeviceInfo(name=name, kind="cpu", identity=name),
            demand=MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1),
            models={"numpy": None if pace is None else model(pace)},
            run_counts={"numpy": 0 if pace is None else 9},
        )
        for name, pace in zip(NAMES, paces, strict=True)
    ]


def model(pace: float) -> DeviceModel:
    return DeviceModel(Affine(0.0, pace), Affine(0.0, pace))


def shares(plan: JobPlan) -> tuple[int, ...]:
    return tuple(assignment.plan.share for assignment in plan.assignments)


def report(rebalancer: Rebalancer, plan: JobPlan, *paces: float) -> None:
    seconds = {
        assignment.device: pace * assignment.plan.share
        for assignment, pace in zip(plan.assignments, paces, strict=True)
    }
    rebalancer.report(plan, seconds, max(seconds.values()))


def test_the_first_plan_needs_candidates() -> None:
    rebalancer = Rebalancer(LOAD, NAMES)

    assert rebalancer.needs_candidates
    assert shares(rebalancer.replan(candidates(3.0, 1.0))) == (1000, 3000)


def test_a_plan_that_ran_as_predicted_is_repeated_until_the_models_are_due() -> None:
    rebalancer = Rebalancer(LOAD, NAMES)
    plan = rebalancer.replan(candidates(3.0, 1.0))
    report(rebalancer, plan, 3.0, 1.0)

    for _ in range(MAX_REPEATS - 1):
        assert not rebalancer.needs_candidates
        assert rebalancer.repeat() is plan
        report(rebalancer, plan, 3.0, 1.0)

    assert rebalancer.needs_candidates


def test_a_mispredicted_run_needs_candidates() -> None:
    rebalancer = Rebalancer(LOAD, NAMES)
    report(rebalancer, rebalancer.replan(candidates(3.0, 1.0)), 3.0, 3.0)

    assert rebalancer.needs_candidates
    assert shares(rebalancer.replan(candidates(3.0, 3.0))) == (2000, 2000)


def test_a_small_gain_leaves_the_present_shares() -> None:
    rebalancer = Rebalancer(LOAD, NAMES)
    for _ in range(MAX_REPEATS):
        needed = rebalancer.needs_candidates
        plan = rebalancer.replan(candidates(3.0, 1.0)) if needed else rebalancer.repeat()
        report(rebalancer, plan, 3.0, 1.0)

    assert rebalancer.needs_candidates
    assert shares(rebalancer.replan(candidates(3.003, 1.0))) == (1000, 3000)


def test_unmeasured_devices_are_tried_and_then_planned_again() -> None:
    rebalancer = Rebalancer(LOAD, NAMES)
    plan = rebalancer.replan(candidates(None, None))
    report(rebalancer, plan, 3.0, 1.0)

    assert shares(plan) == (2000, 2000)
    assert rebalancer.needs_candidates
    assert shares(rebalancer.replan(candidates(3.0, 1.0))) == (1000, 3000)


def test_a_run_in_which_work_moved_needs_candidates() -> None:
    rebalancer = Rebalancer(LOAD, NAMES)
    plan = rebalancer.replan(candidates(3.0, 1.0))

    rebalancer.report_moved_work(plan, {})

    assert rebalancer.needs_candidates


def test_only_the_last_plan_is_reported() -> None:
    rebalancer = Rebalancer(LOAD, NAMES)
    first = rebalancer.replan(candidates(None, None))
    report(rebalancer, first, 3.0, 1.0)
    rebalancer.replan(candidates(3.0, 1.0))

    report(rebalancer, first, 1.0, 99.0)

    assert not rebalancer.needs_candidates


def test_runs_that_all_fail_make_it_start_over() -> None:
    rebalancer = Rebalancer(LOAD, NAMES)
    rebalancer.replan(candidates(3.0, 1.0))
    for _ in range(MAX_REPEATS - 1):
        rebalancer.repeat()

    assert rebalancer.needs_candidates


def test_repeating_without_a_plan_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="replan"):
        Rebalancer(LOAD, NAMES).repeat()
