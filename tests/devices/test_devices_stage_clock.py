"""Modelled times of the stages of iterations on emulated devices."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from device_bench import LINKED, info_of
from diffusing_workload import Diffusion, DiffusionParams

from hetsched.config import Cost, DeviceConfig
from hetsched.devices.base import (
    DeviceJob,
    IteratingDevice,
    IterativeJob,
    StageExecutor,
    StageSeconds,
)
from hetsched.devices.emulated.device import open_device
from hetsched.iterations.home import Home, Part, state_shape
from hetsched.workload import Rows, Stage, Values

PARAMS = DiffusionParams()
MEAN, SMOOTH = Diffusion().iteration(PARAMS)
COPY = Diffusion().start(PARAMS)[0]
CORE = DeviceConfig(
    kind="emulated", clock="virtual", compute=Cost(points=((4, "2ms"), (8, "10ms")))
)
GPU = msgspec.structs.replace(LINKED, clock="virtual")


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


def seconds(
    executor: StageExecutor, stage: Stage, iteration: int = 1, part: Part = Part.ITERATION
) -> StageSeconds:
    partials = {"total": np.zeros(4), "change": np.zeros(()), "rounds": np.zeros(())}
    return executor.compute(part, stage, iteration, Values(), partials)


def test_the_stages_of_an_iteration_take_equal_parts_of_its_modelled_time() -> None:
    executor = executor_of(CORE, Rows(0, 6, 24))

    assert executor.is_virtual
    for stage, part in [(COPY, Part.START), (MEAN, Part.ITERATION), (SMOOTH, Part.ITERATION)]:
        assert seconds(executor, stage, part=part) == (pytest.approx(3e-3), 0.0)


def test_halos_and_whole_rows_pass_over_the_link() -> None:
    executor = executor_of(GPU, Rows(8, 12, 24))  # 5 us and 10 us for each row
    seconds(executor, COPY, part=Part.START)

    mean, smooth = seconds(executor, MEAN), seconds(executor, SMOOTH)

    assert mean.transfer == pytest.approx((5 + 2 * 10 + 5 + 4 * 10) * 1e-6)
    assert smooth.transfer == pytest.approx((5 + 20 * 10 + 5 + 2 * 10) * 1e-6)


def test_rows_beyond_the_memory_pass_over_the_link_in_each_iteration() -> None:
    demand = Diffusion().demand(PARAMS, "emulated")
    small = msgspec.structs.replace(GPU, memory=str(demand.need([10])))

    fits, streams = (
        [seconds(executor, stage).transfer for stage in (COPY, MEAN, SMOOTH)]
        for executor in (executor_of(GPU, Rows(0, 24, 24)), executor_of(small, Rows(0, 24, 24)))
    )

    added = [after - before for before, after in zip(fits, streams, strict=True)]
    assert added[1] == pytest.approx(14 * 10e-6)
    assert added[2] == pytest.approx(2 * 14 * 10e-6 + 5e-6)


def test_stalls_lengthen_some_stages_and_are_the_same_in_each_run() -> None:
    config = msgspec.structs.replace(CORE, stalls=0.2)
    runs = [
        [seconds(executor, MEAN, iteration).compute for iteration in range(1, 60)]
        for executor in (executor_of(config, Rows(0, 4, 24)) for _ in range(2))
    ]

    assert runs[0] == runs[1]
    assert set(runs[0]) == {1e-3, 20e-3}


Advance = Callable[[float], None]


@pytest.fixture
def advance(monkeypatch: pytest.MonkeyPatch) -> Advance:
    """A clock on which nothing but sleep, and what the test says, takes time."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    fake: Any = type("FakeTime", (), {"monotonic": lambda: now[0], "sleep": sleep})
    monkeypatch.setattr("hetsched.devices.emulated.stage_clock.time", fake)
    assert time.monotonic is not fake.monotonic
    return sleep


def test_a_real_clock_holds_a_stage_until_its_modelled_end(advance: Advance) -> None:
    executor = executor_of(msgspec.structs.replace(CORE, clock="real"), Rows(0, 4, 24))

    times = seconds(executor, MEAN)

    assert not executor.is_virtual
    assert times == (pytest.approx(1e-3), 0.0)


def test_work_that_takes_longer_than_modelled_is_late(advance: Advance) -> None:
    executor = executor_of(msgspec.structs.replace(CORE, clock="real"), Rows(0, 4, 24))
    kernels = executor._kernels  # type: ignore[attr-defined]
    kernels["mean"] = lambda *arguments: advance(5e-3)

    assert seconds(executor, MEAN) == (pytest.approx(5e-3), 0.0)
