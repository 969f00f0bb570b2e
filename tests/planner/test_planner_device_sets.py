"""Sets of devices: which are considered, tried and kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planner_devices import shares

from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, PiecewiseLinear
from hetsched.models.evidence.co_runners import CoRunners
from hetsched.planner.device_sets import choice
from hetsched.planner.device_sets.choice import SetChoice
from hetsched.planner.device_sets.set_state import RUNS_PER_RETRY, SetState
from hetsched.planner.device_sets.subsets import device_sets
from hetsched.planner.host_overhead import plan_with_host_overhead
from hetsched.planner.records import Candidate, JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.text import group_name

LOAD = 400
GPU = DeviceInfo(name="gpu0", kind="cuda", identity="g", link=True, engines=2)
CORES = tuple(DeviceInfo(name=f"cpu{i}", kind="cpu", identity="c") for i in range(2))
MACHINE = [GPU, *CORES]
UNIT = {"gpu0": 0.67e-3, "cpu0": 7.26e-3, "cpu1": 7.26e-3}
"""Seconds per unit beside all others."""
SHARES = {"gpu0": 338, "cpu0": 31, "cpu1": 31}


def candidate(info: DeviceInfo, beside: dict[CoRunners, tuple[float, int]]) -> Candidate:
    """A device with seconds per unit and runs, by its co-runners."""
    models = {}
    for co_runners, (unit, runs) in beside.items():
        units = LOAD if co_runners == "none" else SHARES[info.name]
        curve = PiecewiseLinear([(units, units * unit)] * runs)
        models[co_runners] = {"fft": DeviceModel(curve, curve)}
    runs_beside = {co_runners: {"fft": runs} for co_runners, (_, runs) in beside.items()}
    return Candidate(
        info,
        MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1),
        {"fft": None},
        {"fft": sum(runs for _, runs in beside.values())},
        models_beside=models,
        runs_beside=runs_beside,
    )


def machine(gpu_alone: tuple[float, int] | None = None, runs: int = 4) -> list[Candidate]:
    """The GPU and the cores, measured beside each other, and perhaps the GPU alone."""
    candidates = [candidate(info, {"all": (UNIT[info.name], runs)}) for info in MACHINE]
    if gpu_alone is not None:
        gpu = candidate(GPU, {"all": (UNIT["gpu0"], runs), "none": gpu_alone})
        candidates[0] = gpu
    return candidates


def without_gain_by_one_core(candidates: list[Candidate]) -> list[Candidate]:
    """The same, measured beside some neighbours to be as slow as beside all."""
    return [
        replace(
            candidate,
            models_beside={**candidate.models_beside, "some": candidate.models_beside["all"]},
            runs_beside={**candidate.runs_beside, "some": candidate.runs_beside["all"]},
        )
        for candidate in candidates
    ]


def planned(candidates: list[Candidate], state: SetState | None = None) -> JobPlan:
    choice = SetChoice(LOAD, candidates, state or SetState(), MACHINE, PlanCache())
    return choice.plan()


def labels(infos: list[DeviceInfo]) -> list[str]:
    return [device_set.label for device_set in device_sets(infos)]


def test_a_few_sets_are_considered() -> None:
    cores = [DeviceInfo(name=f"cpu{i}", kind="cpu", identity="c") for i in range(8)]

    assert labels([GPU, *cores]) == [
        "gpu0, cpu0 to cpu7",
        "gpu0, cpu0 to cpu3",
        "gpu0, cpu0",
        "gpu0",
        "cpu0 to cpu7",
    ]
    assert labels(cores) == ["cpu0 to cpu7"]


def test_one_thread_of_each_physical_core_is_a_set() -> None:
    threads = [
        DeviceInfo(name=f"cpu{i}", kind="cpu", identity="c", physical_core=i % 2) for i in range(4)
    ]

    assert labels(threads) == ["cpu0 to cpu3", "cpu0 and cpu1"]
    assert labels([GPU, *threads])[-2:] == ["cpu0 to cpu3", "cpu0 and cpu1"]


def test_half_of_the_cores_are_on_different_physical_cores() -> None:
    threads = [
        DeviceInfo(name=f"cpu{i}", kind="cpu", identity="c", physical_core=i // 2)
        for i in range(4)
    ]

    assert "gpu0, cpu0 and cpu2" in labels([GPU, *threads])


def test_devices_of_configured_speed_have_no_other_sets() -> None:
    emulated = [
        DeviceInfo(name="emu0", kind="emulated", identity="e", link=True),
        DeviceInfo(name="core0", kind="emulated", identity="e"),
    ]

    assert len(device_sets(emulated)) == 1


def test_a_set_that_may_gain_is_tried() -> None:
    state = SetState()
    plan = planned(machine(), state)

    assert shares(plan) == {"gpu0": 367, "cpu0": 33}
    assert plan.is_exploring
    assert state.is_trying
    reason = "the job is tried with gpu0, cpu0 only, which may be faster"
    assert plan.reasons[-1] == f"cpu1: no share, {reason}"


def test_nothing_is_tried_before_the_present_set_is_measured() -> None:
    state = SetState()
    plan = planned(machine(runs=1), state)

    assert set(shares(plan)) == set(SHARES)
    assert state.wants_plan


@pytest.mark.parametrize(
    ("alone", "runs", "devices", "is_exploring"),
    [
        (0.50e-3, 1, {"gpu0"}, True),
        (0.50e-3, 3, {"gpu0"}, False),
        (0.60e-3, 1, set(SHARES), False),
        (0.60e-3, 3, set(SHARES), False),
    ],
)
def test_a_set_is_tried_until_it_is_measured_and_kept_if_it_is_faster(
    alone: float, runs: int, devices: set[str], is_exploring: bool
) -> None:
    plan = planned(without_gain_by_one_core(machine((alone, runs))))

    assert (set(shares(plan)), plan.is_exploring) == (devices, is_exploring)


def test_no_contention_leaves_nothing_to_try() -> None:
    """The GPU alone was as fast as beside the cores: no other set may be faster."""
    plan = planned(machine((UNIT["gpu0"], 1)))

    assert set(shares(plan)) == set(SHARES)
    assert not plan.is_exploring


def test_a_set_that_was_slower_is_tried_again_after_many_runs() -> None:
    state = SetState()
    slower = without_gain_by_one_core(machine((0.58e-3, 3)))
    planned(slower, state)
    state.runs += RUNS_PER_RETRY - 1
    assert not planned(slower, state).is_exploring

    state.runs += 1
    retries = [planned(slower, state).is_exploring for _ in range(7)]

    assert retries == [True] * 6 + [False]  # the GPU alone, then with one core


def test_a_set_without_measurements_in_the_end_is_tried_three_times() -> None:
    """As when other jobs ran beside each trial."""
    state = SetState()
    subject = machine()

    tried = []
    for state.runs in range(9):
        plan = planned(subject, state)
        tried.append(tuple(shares(plan)) if plan.is_exploring else ())

    assert tried == 3 * [("gpu0", "cpu0")] + 3 * [("gpu0",)] + 3 * [()]


def test_short_jobs_are_not_worth_trials() -> None:
    choice = SetChoice(4, machine(), SetState(), MACHINE, PlanCache())

    assert not choice.plan().is_exploring


def test_a_set_that_can_no_longer_be_tried_is_not_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, subject = SetState(), machine()
    for state.runs in range(6):
        planned(subject, state)
    loads: list[int] = []

    def counted(load: int, *args: Any, **options: Any) -> JobPlan:
        loads.append(load)
        return plan_with_host_overhead(load, *args, **options)

    monkeypatch.setattr(choice, "plan_with_host_overhead", counted)
    planned(subject, state)

    assert len(loads) == 1  # the present set


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [((0, 1), "cpu0 and cpu1"), ((0, 1, 2), "cpu0 to cpu2"), ((0, 2, 4), "3 of cpu0 to cpu4")],
)
def test_a_group_with_gaps_is_not_named_as_a_range(
    numbers: tuple[int, ...], expected: str
) -> None:
    assert group_name([f"cpu{number}" for number in numbers]) == expected
