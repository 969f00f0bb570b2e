from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hetsched_workloads.heat import Heat
from hetsched_workloads.jacobi import Jacobi
from iterating_bench import CORE, IteratingBench
from opencl_toys import open_on_host_memory, open_runtime, processor

from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.rows import piece_overhead
from hetsched.devices.base import Device
from hetsched.devices.cpu.device import CpuDevice
from hetsched.iterations.serial import run
from hetsched.transport.device_messages import CommandFailed

STEADY = {
    "grid": "24x20x21",
    "steps": 6,
    "border": "neumann,dirichlet,periodic",
    "border_value": 2.0,
    "tolerance": 1e-3,
    "dtype": "float64",
}


def generated(workload: Any, params: Any) -> dict[str, np.ndarray]:
    inputs = {}
    for spec in workload.arrays(params):
        if spec.is_input:
            inputs[spec.name] = np.empty(spec.shape(workload.load(params)), spec.dtype)
            workload.generate(params, 3, spec.name, 0, inputs[spec.name])
    return inputs


@contextlib.contextmanager
def solving(
    workload: Any, params: Any, inputs: dict[str, np.ndarray], fits: int, core_rows: int
) -> Iterator[IteratingBench]:
    """A core with some rows, and the OpenCL device: with room for `fits`, or no own memory."""
    runtime, load = open_runtime(processor()), workload.load(params)
    memory = workload.demand(params, "opencl").need([fits])
    memory += 4 * piece_overhead(workload, params)
    reference = f"{type(workload).__module__}:{type(workload).__name__}"

    def open_device(info: DeviceInfo) -> Device:
        return Accelerator(info, runtime) if fits else open_on_host_memory(info, runtime)

    devices = [(CORE, CpuDevice), (processor(), open_device)]
    bench = IteratingBench(params, inputs, devices, workload=reference)
    with contextlib.closing(bench):
        bench.prepare([0])
        bench.prepare([1], variant="pyopencl", memory=memory)
        bench.iterate({0: core_rows, 1: load - core_rows})
        yield bench


@pytest.mark.parametrize(
    ("workload", "explicit", "output", "fits", "tolerance"),
    [
        (Heat(), {"grid": "64x512", "steps": 6}, "final", 3, 0.0),
        (Heat(), STEADY, "final", 24, 0.0),
        (Heat(), STEADY, "final", 0, 0.0),
        (Heat(), {"grid": "30x1", "steps": 4, "border": "dirichlet"}, "final", 30, 0.0),
        (Jacobi(), {"n": 96}, "x", 12, 1e-9),
    ],
    ids=["streamed", "3d", "3d-in-host-memory", "thin", "jacobi"],
)
def test_results_are_those_of_one_process(
    workload: Any, explicit: Any, output: str, fits: int, tolerance: float
) -> None:
    params = workload.infer(dict(explicit), {})
    load, granule = workload.load(params), workload.granule(params)
    inputs = generated(workload, params)

    with solving(workload, params, inputs, fits, load // 4 // granule * granule) as bench:
        bench.stopped(2)
        result = bench.arrays[output].copy()

    expected = run(workload, params, inputs, (load,), variant="numpy").outputs[output]
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("workload", "explicit", "array", "index", "value", "message"),
    [
        (Heat(), {"grid": "30x4"}, "initial", (17, 2), np.nan, "initial: row 17 has a NaN"),
        (Jacobi(), {"n": 32}, "A", (20, 20), 0.0, r"A\[20, 20\] is 0"),
        (Jacobi(), {"n": 32}, "A", (20, 3), np.inf, r"A\[20, 3\] is inf"),
    ],
)
def test_impossible_data_are_named(
    workload: Any, explicit: Any, array: str, index: tuple[int, int], value: float, message: str
) -> None:
    params = workload.infer(dict(explicit), {})
    inputs = generated(workload, params)
    inputs[array][index] = value

    with solving(workload, params, inputs, workload.load(params), 0) as bench:
        while not isinstance(event := bench.events.get(timeout=60)[1], CommandFailed):
            pass

    assert re.match(message, event.error.message)
