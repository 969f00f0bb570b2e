from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import pytest
from planner_devices import FAST, MIB, core, gpu, shares

from hetsched.device import DeviceInfo
from hetsched.errors import DataError, UsageError
from hetsched.explain import Explanation
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear, SpeedFunction
from hetsched.planner.explanation import explain_job
from hetsched.planner.job_planner import plan_job
from hetsched.planner.records import Candidate
from hetsched.planner.totals import PlanCache


@dataclass(frozen=True)
class Counted:
    """A curve that counts the sizes at which it is evaluated."""

    curve: SpeedFunction
    sizes: list[int] = field(default_factory=list)

    def time(self, x: Any, /) -> Any:
        self.sizes.append(np.size(x))
        return self.curve.time(x)

    def speed(self, x: Any, /) -> Any:
        return self.curve.speed(x)


def test_without_models_all_devices_get_equal_shares() -> None:
    plan = plan_job(10, [core(0), core(1), gpu()])
    assert shares(plan) == {"cpu0": 4, "cpu1": 3, "gpu0": 3}
    assert plan.predicted_seconds is None
    assert "no measurements for" in plan.reasons[0]


def test_devices_with_models_finish_together() -> None:
    plan = plan_job(300, [core(0, 1e-3), core(1, 2e-3)])
    assert shares(plan) == {"cpu0": 200, "cpu1": 100}
    assert plan.predicted_seconds == pytest.approx(0.2)


def test_equal_cores_whose_speeds_differ_by_noise_share_evenly() -> None:
    plan = plan_job(101, [core(0, 1.00), core(1, 1.03), core(2, 2.0)])
    units_of = shares(plan)
    assert abs(units_of["cpu0"] - units_of["cpu1"]) <= 1
    assert units_of["cpu2"] < 30


def test_equal_cores_of_which_one_is_busy_share_unevenly() -> None:
    assert shares(plan_job(220, [core(0, 1.0), core(1, 1.2)])) == {"cpu0": 120, "cpu1": 100}


def test_unmeasured_devices_get_equal_shares_and_the_rest_is_partitioned() -> None:
    plan = plan_job(300, [core(0, 1e-3), core(1, 3e-3, "other"), core(2, None, "new")])
    assert shares(plan) == {"cpu0": 150, "other1": 50, "new2": 100}


def test_a_single_unit_goes_to_the_fastest() -> None:
    plan = plan_job(
        1, [core(0, 2e-3), core(1, 1e-3), gpu(replace(FAST, total=PiecewiseLinear([(1, 10.0)])))]
    )
    assert shares(plan) == {"cpu1": 1}
    assert plan.predicted_seconds == pytest.approx(1e-3)


def test_a_single_unit_goes_to_an_unmeasured_device() -> None:
    assert shares(plan_job(1, [core(0, 1e-3), gpu()])) == {"gpu0": 1}


def test_a_repeated_plan_is_the_cached_one() -> None:
    devices = [gpu(FAST), *(core(i, 2.1e-3) for i in range(8))]
    cache = PlanCache()
    first = plan_job(255, devices, cache=cache)
    renewed = replace(FAST, compute=Affine(3e-5, 1e-4))
    again = plan_job(255, [gpu(renewed), *devices[1:]], cache=cache)
    assert again.shares == first.shares
    assert again.assignments[0].plan is first.assignments[0].plan


def test_a_model_that_has_learnt_gets_another_plan() -> None:
    learning = replace(FAST, compute=Affine(observations=[(10, 1e-3), (20, 2e-3)]))
    cache = PlanCache()
    first = plan_job(256, [gpu(learning), *(core(i, 2.1e-3) for i in range(8))], cache=cache)
    for _ in range(9):
        learning.compute.observe(10, 10e-3)  # type: ignore[attr-defined]
        learning.compute.observe(20, 20e-3)  # type: ignore[attr-defined]
    again = plan_job(256, [gpu(learning), *(core(i, 2.1e-3) for i in range(8))], cache=cache)
    assert shares(again)["gpu0"] < shares(first)["gpu0"] / 2


@pytest.mark.parametrize("load", [1, 2, 4])
def test_small_jobs_stay_on_the_fastest_device(load: int) -> None:
    cores = [core(i, 2.1e-3) for i in range(8)]
    plan = plan_job(load, [gpu(FAST), *cores])
    assert shares(plan) == {"gpu0": load}
    assert "cpu0: no share, the job finishes sooner without it" in plan.reasons
    assert shares(plan_job(load, [gpu(replace(FAST, compute=Affine(1.0, 1.0))), *cores])) == {
        f"cpu{i}": 1 for i in range(load)
    }


def test_a_device_that_would_slow_the_job_down_gets_no_share() -> None:
    behind_a_slow_link = replace(FAST, h2d=Affine(0.5, 1e-3))
    plan = plan_job(256, [gpu(behind_a_slow_link), *(core(i, 1e-3) for i in range(8))])
    assert shares(plan) == {f"cpu{i}": 32 for i in range(8)}
    assert "gpu0: no share, the job finishes sooner without it" in plan.reasons


def test_a_device_whose_memory_holds_no_unit_is_not_used_with_a_reason() -> None:
    plan = plan_job(8, [core(0), gpu(memory=MIB)])
    assert shares(plan) == {"cpu0": 8}
    assert "gpu0: not used, one unit needs 4 MiB of its memory, the limit is 1 MiB" in plan.reasons


def test_a_unit_too_big_for_every_device_is_an_error() -> None:
    with pytest.raises(DataError, match=r"one unit needs 4 MiB .* limit is 1 MiB"):
        plan_job(8, [gpu(memory=MIB)])


def test_an_empty_load_is_refused() -> None:
    with pytest.raises(UsageError, match="0 units"):
        plan_job(0, [core()])


# ---- totals of devices with a link


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
