"""Host overhead: driving a GPU takes processor time from cores, and plans account for it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import DeviceInfo
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.planner.host_overhead import host_overheads, plan_with_host_overhead
from hetsched.planner.job_planner import plan_job
from hetsched.planner.planner import Planner
from hetsched.planner.records import Candidate, JobPlan
from hetsched.plans import MemoryDemand, Overlap, timeline

MIB = 1 << 20
LOAD = 1000
CORE, GPU, OVERHEAD = 4e-3, 1e-3, 0.3e-3
"""Seconds a unit: of a core, of the GPU, of its host overhead: 30 % of a core."""


def core(number: int, seconds: float = CORE, pinned: bool = True) -> Candidate:
    cores = (number,) if pinned else ()
    info = DeviceInfo(name=f"cpu{number}", kind="cpu", identity="x", cores=cores)
    curve = PiecewiseLinear([(200, 200 * seconds)] * 5)
    demand = MemoryDemand(input_bytes=MIB, work_bytes=0, output_bytes=MIB)
    return Candidate(info, demand, {"fft": DeviceModel(curve, curve)}, {"fft": 9})


def gpu(cores: tuple[int, ...] = (), overhead: float | None = OVERHEAD) -> Candidate:
    info = DeviceInfo(
        name="gpu0",
        kind="cuda",
        identity="g",
        link=True,
        memory=64 * MIB,
        engines=2,
        cores=cores,
    )
    copies = Affine(1e-5, 3e-4)
    curve = None if overhead is None else Affine(1e-5, overhead)
    model = DeviceModel(PiecewiseLinear(), Affine(2e-5, GPU), copies, copies, host_overhead=curve)
    demand = MemoryDemand(input_bytes=MIB, work_bytes=0, output_bytes=MIB, limit=64 * MIB)
    return Candidate(info, demand, {"cufft": model}, {"cufft": 9})


def machine(cores: int = 4, **how: object) -> list[Candidate]:
    return [*(core(number) for number in range(cores)), gpu(**how)]  # type: ignore[arg-type]


def simulated(plan: JobPlan, hosts: set[str] | None = None) -> float:
    """Seconds of `plan` where a core gives up an equal part of itself while the GPU works.

    `hosts`: the cores with the overhead; None: all that compute.
    """
    linked = next(assignment for assignment in plan.assignments if assignment.device == "gpu0")
    model = linked.model
    assert model is not None
    assert model.host_overhead is not None
    busy = timeline(linked.plan, model, Overlap.FULL).makespan
    seconds = sum(model.host_overhead.time(float(units)) for units in linked.plan.chunks)
    cores = [assignment for assignment in plan.assignments if assignment.device != "gpu0"]
    charged_cores = {assignment.device for assignment in cores} if hosts is None else hosts
    ends = [busy]
    for assignment in cores:
        pace = 1 - (
            seconds / busy / len(charged_cores) if assignment.device in charged_cores else 0.0
        )
        work = CORE * assignment.plan.share
        ends.append(work / pace if work <= pace * busy else busy + work - pace * busy)
    return max(ends)


def share(plan: JobPlan, device: str) -> int:
    return sum(
        assignment.plan.share for assignment in plan.assignments if assignment.device == device
    )


def test_only_with_the_overhead_a_plan_takes_the_predicted_time() -> None:
    charged, blind = plan_with_host_overhead(LOAD, machine()), plan_job(LOAD, machine())

    assert charged.predicted_seconds == pytest.approx(simulated(charged), rel=0.01)
    assert blind.predicted_seconds != pytest.approx(simulated(blind), rel=0.05)
    assert simulated(charged) < 0.98 * simulated(blind)


def test_a_device_process_that_is_pinned_costs_its_core_only() -> None:
    plan = plan_with_host_overhead(LOAD, [*machine()[:4], gpu(cores=(2,))])

    assert plan.predicted_seconds == pytest.approx(simulated(plan, {"cpu2"}), rel=0.01)
    assert share(plan, "cpu2") < 0.8 * share(plan, "cpu1")
    assert set(host_overheads(plan)) == {"cpu2"}


def test_the_host_overhead_of_a_core_is_a_reason() -> None:
    plan = plan_with_host_overhead(LOAD, machine())

    (reason,) = [
        text for text in plan.reasons if text.startswith("cpu1: ") and "host overhead" in text
    ]
    assert re.fullmatch(r"cpu1: 3\d(\.\d)? ms of host overhead for other devices", reason)


def test_a_device_process_on_an_idle_core_costs_nothing() -> None:
    for cores in [(0, 1, 2, 3, 4), (7,)]:
        plan = plan_with_host_overhead(LOAD, [*machine()[:4], gpu(cores=cores)])
        assert host_overheads(plan) == {}
        assert plan == plan_job(LOAD, [*machine()[:4], gpu(cores=cores)])


def test_fixed_shares_stay_and_their_times_include_the_overhead() -> None:
    fixed_shares = {"cpu0": 100, "cpu1": 100, "cpu2": 100, "cpu3": 100, "gpu0": 600}

    plan = plan_with_host_overhead(LOAD, machine(), fixed_shares)

    assert {
        assignment.device: assignment.plan.share for assignment in plan.assignments
    } == fixed_shares
    times = {assignment.device: assignment.predicted_seconds for assignment in plan.assignments}
    assert times["cpu0"] == pytest.approx(100 * CORE + host_overheads(plan)["cpu0"])


@pytest.mark.parametrize(("driving", "part"), [((), 4), ((0, 1, 2, 3), 4), ((2,), 1)])
def test_a_team_has_the_overhead_of_one_of_its_cores(driving: tuple[int, ...], part: int) -> None:
    info = DeviceInfo(
        name="team0",
        kind="cpu",
        identity="x x4 threads",
        cores=(0, 1, 2, 3),
        members=("cpu0", "cpu1", "cpu2", "cpu3"),
    )
    curve = PiecewiseLinear([(500, 500 * CORE / 8)] * 5)
    team = replace(core(0), info=info, models={"fft": DeviceModel(curve, curve)})

    plan = Planner(LOAD).next([*(core(i, 0.025) for i in range(4)), team, gpu(driving)])

    linked = next(assignment for assignment in plan.assignments if assignment.device == "gpu0")
    seconds = sum(OVERHEAD * units + 1e-5 for units in linked.plan.chunks)
    assert host_overheads(plan) == {"team0": pytest.approx(seconds / part)}


@given(
    st.integers(1, 400),
    st.lists(st.floats(1e-4, 0.1), min_size=1, max_size=5),
    st.floats(0.0, 2e-3),
    st.booleans(),
)
def test_all_units_are_assigned_whatever_the_host_overhead(
    load: int, seconds: list[float], overhead: float, pinned: bool
) -> None:
    cores = [core(number, pace, pinned) for number, pace in enumerate(seconds)]

    plan = plan_with_host_overhead(load, [*cores, gpu(overhead=overhead)])

    assert sum(assignment.plan.share for assignment in plan.assignments) == load
    assert plan.predicted_seconds is not None
