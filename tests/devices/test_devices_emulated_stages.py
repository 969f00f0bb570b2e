from __future__ import annotations

import msgspec
import numpy as np
import pytest
from device_bench import LINKED, info_of
from diffusing_workload import Diffusion, DiffusionParams

from hetsched.config import Cost, DeviceConfig
from hetsched.devices.accelerator.rows import piece_overhead
from hetsched.devices.base import DeviceJob, IteratingDevice, IterativeJob, StageExecutor
from hetsched.devices.emulated.device import open_device
from hetsched.iterations.home import Home, Part, state_shape
from hetsched.workload import Rows, Stage, Values

PARAMS = DiffusionParams(columns=64)
MEAN, SMOOTH = Diffusion().iteration(PARAMS)
COPY = Diffusion().start(PARAMS)[0]
CORE = DeviceConfig(
    kind="emulated", clock="virtual", compute=Cost(points=((4, "2ms"), (8, "10ms")))
)
GPU = msgspec.structs.replace(LINKED, clock="virtual", memory="1MiB")


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


def test_of_rows_that_stay_only_halos_and_whole_arrays_pass_over_the_link() -> None:
    executor = executor_of(GPU, Rows(8, 12, 24))  # 10 us and 20 us a row; copies 5 us and 10 us
    assert executor.has_own_memory
    seconds(executor, COPY, Part.START)
    executor.defer()

    mean, smooth = seconds(executor, MEAN), seconds(executor, SMOOTH)

    assert [mean[0], smooth[0]] == pytest.approx([45e-6, 45e-6])
    assert mean[1] > 0
    assert smooth[1] > 0


def test_rows_beyond_the_memory_pass_over_the_link_in_each_iteration() -> None:
    demand = Diffusion().demand(PARAMS, "emulated")
    small = msgspec.structs.replace(
        GPU, memory=str(demand.need([10]) + 4 * piece_overhead(Diffusion(), PARAMS))
    )
    totals = []
    for config in (GPU, small):
        executor = executor_of(config, Rows(0, 24, 24))
        totals.append([sum(seconds(executor, stage)) for stage in (COPY, MEAN, SMOOTH)])

    assert all(streamed > held for held, streamed in zip(*totals, strict=True))


def test_stalls_lengthen_some_stages_and_are_the_same_in_each_run() -> None:
    config = msgspec.structs.replace(CORE, stalls=0.2)
    runs = [
        [seconds(executor, MEAN)[0] for _ in range(60)]
        for executor in (executor_of(config, Rows(0, 4, 24)) for _ in range(2))
    ]

    assert runs[0] == runs[1]
    assert {round(each, 9) for each in runs[0]} == {1e-3, 20e-3}
