"""The first split of an iterative job, from what earlier ones have shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from diffusing_workload import Diffusion, DiffusionParams
from msgspec.structs import replace

from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.piece_sizes import piece_overhead
from hetsched.engine.admission.resolved_job import ResolvedJob, declare_iterative
from hetsched.engine.planning.job_plan import first_plan
from hetsched.engine.planning.job_planning import learn_rows
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.errors import DataError
from hetsched.job import IterationSeconds, JobSpec
from hetsched.store.model_store import ModelStore
from hetsched.workload import Variant

ROWS = 120
CORES = tuple(DeviceInfo(name=f"cpu{i}", kind="cpu", identity=f"core {i}") for i in range(2))
LINKED = DeviceInfo(name="emu0", kind="emulated", identity="gpu", link=True, memory=1 << 30)


class CoresOnly(Diffusion):
    def variants(self, kind: str) -> Sequence[Variant]:
        return super().variants(kind) if kind == "cpu" else ()


WORKLOAD, PARAMS = CoresOnly(), DiffusionParams(rows=ROWS)


def job(devices: tuple[DeviceInfo, ...] = CORES) -> ResolvedJob:
    return ResolvedJob(
        WORKLOAD,
        "diffusing_workload:Diffusion",
        PARAMS,
        ROWS,
        tuple(WORKLOAD.arrays(PARAMS)),
        devices=tuple(info.name for info in devices),
        iterative=declare_iterative(WORKLOAD, PARAMS),
    )


def state(devices: tuple[DeviceInfo, ...] = CORES) -> PlanningState:
    return PlanningState(ModelStore(None), machine=lambda: devices)


def spec(**options: Any) -> JobSpec:
    return JobSpec(workload="diffusion", params={}, **options)


def learnt(seconds: tuple[float, float]) -> PlanningState:
    """The state after a job in which each of ROWS / 2 rows took cpu0 and cpu1 so long."""
    half = ROWS // 2
    times = {f"cpu{i}": IterationSeconds(half * each) for i, each in enumerate(seconds)}
    return learnt_from(times, CORES, state())


def learnt_from(
    times: Mapping[str, IterationSeconds], devices: tuple[DeviceInfo, ...], planning: PlanningState
) -> PlanningState:
    """The state after a job in which devices took so long for ROWS / 2 rows each."""
    plan = first_plan(job(devices), spec(), devices, planning).plan
    assignments = {a.device: a for a in plan.assignments}
    measured = [
        (device, ROWS // 2, each.busy, each.compute if each.transfer else None)
        for device, each in times.items()
    ]
    infos = {info.name: info for info in devices}
    learn_rows(job(devices), assignments, infos, measured, planning)
    return planning


def test_without_measurements_the_split_is_even() -> None:
    plan = first_plan(job(), spec(), CORES, state())
    assert plan.balance.rows == (60, 60)
    assert [a.variant for a in plan.plan.assignments] == ["numpy", "numpy"]
    assert [a.max_chunk for a in plan.plan.assignments] == [ROWS, ROWS]
    assert plan.plan.predicted_seconds is None


@pytest.mark.parametrize("method", ["auto", "functional", "constant", "imbalance-factor"])
def test_measured_iterations_give_the_next_jobs_split(method: Any) -> None:
    plan = first_plan(job(), spec(balance=method), CORES, learnt((0.001, 0.003)))
    assert plan.balance.rows == (90, 30)
    assert plan.plan.shares == {"cpu0": 90, "cpu1": 30}
    assert plan.plan.predicted_seconds == pytest.approx(0.09, rel=0.01)


def test_a_device_behind_a_link_reserves_the_memory_that_it_has() -> None:
    gpu = DeviceInfo(name="emu0", kind="emulated", identity="gpu", link=True, memory=1 << 20)
    rows = WORKLOAD.demand(PARAMS, "emulated").need([ROWS // 4])
    memory = rows + 2 * piece_overhead(WORKLOAD, PARAMS)
    devices = (*CORES, replace(gpu, memory=memory))
    plan = first_plan(job(devices), spec(), devices, state(devices)).plan
    assert plan.assignments[2].slot_memory == memory

    limited = first_plan(job(devices), spec(), devices, state(devices), memory // 2).plan
    assert limited.assignments[2].slot_memory == memory // 2


def test_a_device_whose_memory_does_not_hold_one_row_takes_no_part() -> None:
    demand = WORKLOAD.demand(PARAMS, "emulated")
    needed = demand.need([1]) + piece_overhead(WORKLOAD, PARAMS)
    gpu = replace(LINKED, memory=needed - 1)
    devices = (*CORES, gpu)

    plan = first_plan(job(devices), spec(), devices, state(devices)).plan

    assert [a.device for a in plan.assignments] == ["cpu0", "cpu1"]
    with pytest.raises(DataError, match=rf"one row needs {needed} bytes of device memory"):
        first_plan(job((gpu,)), spec(), (gpu,), state((gpu,)))
