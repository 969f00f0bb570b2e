from __future__ import annotations

from counted_curve import Counted

from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear, SpeedFunction
from hetsched.planner.explanation import ExplainedJob, explain_job
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Candidate
from hetsched.planner.totals import PlanCache

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
    explanation = explain_job(ExplainedJob(None, "planned", "rows", load), plan, cache=cache)
    explained = sum(kernel.sizes) - planned

    assert (plan.load, explanation.load) == (load, load)
    assert planned <= MAX_PLANNING
    assert explained <= MAX_EXPLAINING
    assert sum(len(each.plan.chunks) for each in plan.assignments) <= MAX_CHUNKS


def test_the_bound_of_a_large_load_is_near_the_plan_and_below_it() -> None:
    load, cache = 10**7 + 1, PlanCache()
    plan = plan_job(load, candidates(load, Affine(1e-5, 1e-8)), cache=cache)
    explanation = explain_job(ExplainedJob(None, "planned", "rows", load), plan, cache=cache)
    bound = explanation.bound

    assert bound is not None and plan.predicted_seconds is not None
    assert bound <= plan.predicted_seconds <= 1.02 * bound
