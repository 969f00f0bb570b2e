from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from counted_curve import Counted
from planner_devices import FAST, gpu

from hetsched.device import DeviceInfo
from hetsched.explain import Explanation
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear, SpeedFunction
from hetsched.planner.explanation import explain_job
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Candidate
from hetsched.planner.totals import PlanCache


@pytest.mark.parametrize(
    ("runs", "factor", "expected"), [(1, 1.1, 1.1), (3, 2.0, 2.0), (1, 20.0, 1.25), (1, 0.01, 0.8)]
)
def test_a_share_that_took_longer_than_planned_corrects_by_a_quarter_until_it_took_so_thrice(
    runs: int, factor: float, expected: float
) -> None:
    seconds = plan_job(200, [gpu(FAST)]).predicted_seconds
    assert seconds is not None
    measured = replace(FAST, total=PiecewiseLinear([(200, factor * seconds)] * runs))
    corrected = plan_job(200, [gpu(measured)]).predicted_seconds
    assert corrected == pytest.approx(expected * seconds, rel=0.02)


def test_equal_devices_are_planned_once() -> None:
    """Their shares differ by a unit at most, so that there are two plans, for one or for many."""
    evaluations = []
    for count in (2, 40):
        kernel = Counted(Affine(3e-5, 1e-4))
        plain = gpu(replace(FAST, compute=kernel))
        equal = [
            replace(plain, info=msgspec.structs.replace(plain.info, name=f"gpu{number}"))
            for number in range(count)
        ]
        plan = plan_job(100 * count + 1, equal)
        assert {each.plan.share for each in plan.assignments} == {100, 101}
        evaluations.append(len(kernel.sizes))
    assert evaluations[1] <= evaluations[0] + 2 * 40


MAX_PLANNING, MAX_EXPLAINING = 400_000, 2_000_000
"""Sizes at which one phase is evaluated."""
MAX_CHUNKS = 1000


def stepped_kernel(load: int) -> PiecewiseLinear:
    """Waves of a fiftieth of the load."""
    wave = max(load // 50, 2)
    ends = [(wave * (k + 1), 1e-8 * wave * (k + 1)) for k in range(50)]
    return PiecewiseLinear(
        [point for units, seconds in ends
         for point in ((units - wave + 1, seconds * 0.9999), (units, seconds))]
    )  # fmt: skip


def candidates(load: int, kernel: SpeedFunction) -> list[Candidate]:
    """A GPU that holds a third of the load, and two cores."""
    total = PiecewiseLinear([(1, 1e-7), (load, 1e-7 * load)])
    link = Affine(1e-5, 2e-8)
    limit = 16 * (load // 3)
    info = DeviceInfo(name="gpu0", kind="cuda", identity="g", link=True, engines=2, memory=limit)
    demand = MemoryDemand(input_bytes=8, work_bytes=0, output_bytes=8, limit=limit)
    model = DeviceModel(PiecewiseLinear(), kernel, link, link)
    cores = [
        Candidate(
            DeviceInfo(name=f"cpu{number}", kind="cpu", identity="c"),
            MemoryDemand(input_bytes=8, work_bytes=0, output_bytes=8),
            {"v": DeviceModel(total, total)},
            {"v": 9},
        )
        for number in range(2)
    ]
    return [Candidate(info, demand, {"v": model}, {"v": 9}), *cores]


def test_a_large_load_is_planned_and_explained_with_bounded_work() -> None:
    load = 10**9
    kernel, cache = Counted(stepped_kernel(load)), PlanCache()

    plan = plan_job(load, candidates(load, kernel), cache=cache)
    planned = sum(kernel.sizes)
    explanation = explain_job(
        Explanation(job=None, state="planned", workload="rows", load=load), plan, cache=cache
    )
    explained = sum(kernel.sizes) - planned

    assert (plan.load, explanation.load) == (load, load)
    assert planned <= MAX_PLANNING
    assert explained <= MAX_EXPLAINING
    assert sum(len(each.plan.chunks) for each in plan.assignments) <= MAX_CHUNKS


def test_the_bound_of_a_large_load_is_near_the_plan_and_below_it() -> None:
    load, cache = 10**7 + 1, PlanCache()
    plan = plan_job(load, candidates(load, Affine(1e-5, 1e-8)), cache=cache)
    explanation = explain_job(
        Explanation(job=None, state="planned", workload="rows", load=load), plan, cache=cache
    )
    bound = explanation.bound

    assert bound is not None and plan.predicted_seconds is not None
    assert bound <= plan.predicted_seconds <= 1.02 * bound
