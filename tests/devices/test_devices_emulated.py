from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from device_bench import LINKED, MEMORY, VIRTUAL, Bench, cut, drive, info_of, update_job
from diffusing_workload import Diffusion, DiffusionParams

from hetsched.config import Cost, DeviceConfig
from hetsched.device import Chunk, ChunkTimes, Slot
from hetsched.devices.base import (
    DeviceJob,
    DeviceOutOfMemory,
    IteratingDevice,
    IterativeJob,
    StageExecutor,
)
from hetsched.devices.emulated.device import open_device
from hetsched.errors import InternalError
from hetsched.iterations.home import Home, Part, state_shape
from hetsched.workload import Rows, Stage, Values

CLOCK = 1e-9
"""Seconds that a difference of two readings of the clock may be off, however long it has run."""


def emulate(
    sizes: list[int], barriers: tuple[int, ...] = (), late_by: int = 0, **changes: Any
) -> dict[int, ChunkTimes]:
    """Times on a virtual device: 1 s a unit to compute, 1 s a unit each way, 3 slots."""
    second = Cost(unit="1s")
    config = msgspec.structs.replace(VIRTUAL, compute=second, h2d=second, d2h=second)
    config = msgspec.structs.replace(config, **changes)
    device = open_device(info_of(config), config)
    job = Bench(sum(sizes)).job(max(sizes), slots=3)
    return drive(device, job, cut(sizes, barriers), late_by=late_by)


def ends(times: dict[int, ChunkTimes]) -> list[float]:
    return [times[number].end for number in sorted(times)]


def test_two_copy_engines_overlap_everything_and_none_nothing() -> None:
    assert ends(emulate([1, 1, 1, 1])) == [3, 4, 5, 6]
    assert ends(emulate([1, 2, 1], engines=0)) == [3, 9, 12]


def test_one_copy_engine_copies_the_next_input_before_the_last_output() -> None:
    times = emulate([1, 1, 1], engines=1)

    assert [times[i].copy_in for i in range(3)] == [(0, 1), (1, 2), (3, 4)]
    assert [times[i].copy_out for i in range(3)] == [(2, 3), (4, 5), (5, 6)]


def test_the_order_of_one_copy_engine_does_not_depend_on_the_slots() -> None:
    config = msgspec.structs.replace(VIRTUAL, engines=1)
    ways = []
    for slots in (2, 3):
        device = open_device(info_of(config), config)
        job = Bench(24).job(3, slots)
        ways.append(ends(drive(device, job, cut([3] * 8))))

    assert ways[0] == ways[1]


def test_duplex_copies_stretch_each_other() -> None:
    times = emulate([2, 2, 2], duplex=(0.5, 1.0), compute=Cost(unit="1us"))

    # I1 alone 0-2, then I2 at half pace while O1 runs 2-4: one second left, done at 5.
    assert times[1].copy_in == pytest.approx((2, 5), abs=1e-4)


def test_rates_count_bytes_and_operations() -> None:
    costs = {"h2d": Cost(rate="32B/s"), "compute": Cost(rate="16flop/s")}

    times = emulate([1, 2], **costs)  # a unit has 32 bytes each way and 8 operations

    assert times[0].copy_in == (0, 1)
    assert times[1].compute == (3, 4)


@pytest.mark.parametrize("engines", [0, 1, 2])
def test_virtual_times_do_not_depend_on_when_chunks_arrive(engines: int) -> None:
    ways = [
        emulate([1, 2, 3, 1, 2, 3, 1, 2], (), late, engines=engines, duplex=(0.7, 0.6), stalls=0.2)
        for late in (0, 1, 2, 5)
    ]

    assert all(way == ways[0] for way in ways)


def test_an_emulated_core_computes_one_chunk_after_the_other() -> None:
    config = DeviceConfig(kind="emulated", clock="virtual", compute=Cost(gap="1s", unit="2s"))
    device = open_device(info_of(config), config)

    times = drive(device, Bench(3).job(2), cut([2, 1]))

    assert [times[i].compute for i in range(2)] == [(0, 5), (5, 8)]


def test_work_that_outlasts_its_model_is_counted() -> None:
    instant = Cost(unit="0.0001ns")
    hopeless = msgspec.structs.replace(
        LINKED, h2d=instant, compute=instant, d2h=instant, memory="1MiB"
    )
    device = open_device(info_of(hopeless), hopeless)

    times = drive(device, Bench(2000).job(1000), cut([1000, 1000]))

    device.close()
    assert sum(chunk_times.late for chunk_times in times.values()) >= 1


def test_a_slot_beyond_the_memory_is_refused() -> None:
    device = open_device(info_of(VIRTUAL), VIRTUAL)
    device.prepare(Bench(8).job(4, slots=2))

    with pytest.raises(InternalError, match="slot 7"):
        device.copy_in(Chunk(0, 0, 4), Slot(7, 4096))


def test_slots_residents_and_work_area_share_the_memory() -> None:
    device = open_device(info_of(VIRTUAL), VIRTUAL)
    job = update_job(24, 4, memory=MEMORY - 512)
    greedy = replace(job.demand, work="max", work_bytes=1)

    device.prepare(job)

    with pytest.raises(DeviceOutOfMemory, match="emu0: out of device memory"):
        device.prepare(replace(job, demand=greedy))


def test_a_table_of_costs_holds_on_a_real_clock() -> None:
    table = Cost(points=((1, "100us"), (10, "300us"), (11, "600us")))
    config = msgspec.structs.replace(LINKED, compute=table)
    device = open_device(info_of(config), config)

    times = drive(device, Bench(21).job(11), cut([10, 11]))

    device.close()
    for chunk, modelled in zip(times.values(), (300e-6, 600e-6), strict=True):
        seconds = chunk.compute[1] - chunk.compute[0]
        assert seconds >= modelled - CLOCK
        assert math.isclose(seconds, modelled, abs_tol=CLOCK) or chunk.late


PARAMS = DiffusionParams(columns=64)
MEAN, SMOOTH = Diffusion().iteration(PARAMS)
COPY = Diffusion().start(PARAMS)[0]
CORE = DeviceConfig(
    kind="emulated", clock="virtual", compute=Cost(points=((4, "2ms"), (8, "10ms")))
)


def executor_of(config: DeviceConfig, rows: Rows) -> StageExecutor:
    device = open_device(info_of(config), config)
    assert isinstance(device, IteratingDevice)
    workload = Diffusion()
    arrays = {spec.name: np.ones(spec.shape(24)) for spec in workload.arrays(PARAMS)}
    arrays |= {state.name: np.ones(state_shape(state, 24)) for state in workload.state(PARAMS)}
    demand = workload.demand(PARAMS, "emulated")
    job = DeviceJob(workload, PARAMS, "numpy", {}, {}, 24, demand)
    executor = device.prepare_iterations(IterativeJob(job, Home(workload, PARAMS, arrays)))
    executor.adopt(rows, 0)
    return executor


def seconds(executor: StageExecutor, stage: Stage, part: Part = Part.ITERATION) -> list[float]:
    partials = {"total": np.zeros(64), "change": np.zeros(()), "rounds": np.zeros(())}
    own = {name: partials[name] for name in stage.reductions}
    return list(executor.compute(part, stage, 1, Values(), own))


def test_the_stages_of_an_iteration_take_equal_parts_of_its_modelled_time() -> None:
    executor = executor_of(CORE, Rows(0, 6, 24))

    for stage, part in [(COPY, Part.START), (MEAN, Part.ITERATION), (SMOOTH, Part.ITERATION)]:
        assert seconds(executor, stage, part) == [pytest.approx(3e-3), 0.0]


def test_stalls_lengthen_some_stages_and_are_the_same_in_each_run() -> None:
    config = msgspec.structs.replace(CORE, stalls=0.2)
    runs = [
        [seconds(executor, MEAN)[0] for _ in range(60)]
        for executor in (executor_of(config, Rows(0, 4, 24)) for _ in range(2))
    ]

    assert runs[0] == runs[1]
    assert {round(each, 9) for each in runs[0]} == {1e-3, 20e-3}
