from __future__ import annotations

from dataclasses import replace
from typing import Any

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
from hetsched.planner.totals import LinkedTotal, PlanCache
from hetsched.plans import Overlap

PLANE = 2 << 20
"""Bytes of a 512x512 complex64 plane."""


def memory(units: int) -> MemoryDemand:
    return MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=units)


def behind_a_link(compute: Affine, rate_in: float, rate_out: float, **options: Any) -> DeviceModel:
    """A GPU behind a link of so many bytes a second; nothing measured as a whole."""
    h2d, d2h = Affine(10e-6, PLANE / rate_in), Affine(10e-6, PLANE / rate_out)
    return DeviceModel(options.pop("total", PiecewiseLinear()), compute, h2d, d2h, **options)


DESKTOP = behind_a_link(Affine(30e-6, 100e-6), 6.0e9, 6.5e9)


def corrected_by(observed: list[tuple[float, float]], share: float = 200) -> float:
    """The correction at `share`, where each of `observed` took so many times the estimate."""
    plain = LinkedTotal(DESKTOP, memory(100), Overlap.FULL, 400).curve
    total = PiecewiseLinear((units, factor * plain.time(units)) for units, factor in observed)
    slower = replace(DESKTOP, total=total)
    curve = LinkedTotal(slower, memory(100), Overlap.FULL, 400).curve
    return float(curve.time(share) / plain.time(share))


def test_the_planned_total_is_corrected_by_the_shares_measured() -> None:
    assert corrected_by([(200, 1.1)]) == pytest.approx(1.1, rel=0.02)
    assert corrected_by([(10, 1.0), (200, 1.2), (190, 1.2)]) == pytest.approx(1.2, rel=0.02)
    assert corrected_by([(800, 0.9)]) == pytest.approx(0.9, rel=0.1)


def test_no_run_corrects_it_by_more_than_a_quarter() -> None:
    assert corrected_by([(200, 20.0)]) == pytest.approx(1.25, rel=0.01)
    assert corrected_by([(200, 0.01)]) == pytest.approx(0.8, rel=0.01)


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
