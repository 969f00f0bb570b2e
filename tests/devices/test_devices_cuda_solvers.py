"""Solvers of linear systems on the CUDA device over the fake runtime, together with a core.

Rows that don't fit the GPU pass through it in pieces, which cut granules and Cholesky blocks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hetsched_workloads.jacobi import Jacobi
from hetsched_workloads.pcg import Pcg
from iterating_bench import CORE, IteratingBench

from hetsched.device import DeviceInfo
from hetsched.devices.cpu.device import CpuDevice
from hetsched.devices.cuda.device import CudaDevice
from hetsched.devices.cuda.fake.runtime import FakeRuntime
from hetsched.iterations.serial import run

GPU = DeviceInfo(name="gpu0", kind="cuda", identity="fake GPU", link=True)


def generated(workload: Any, params: Any) -> dict[str, np.ndarray]:
    inputs = {}
    for spec in workload.arrays(params):
        if spec.is_input:
            inputs[spec.name] = np.empty(spec.shape(workload.load(params)), spec.dtype)
            workload.generate(params, 3, spec.name, 0, inputs[spec.name])
    return inputs


CASES: list[tuple[Any, str, Mapping[str, Any]]] = [
    (Jacobi(), "numpy", {"n": 96}),
    (Pcg(), "scipy", {"grid": "5x6x7"}),
    (Pcg(), "scipy", {"grid": "5x6x7", "preconditioner": "cholesky", "block": 30}),
]


@pytest.mark.parametrize("fits", [1.0, 0.37])
@pytest.mark.parametrize("case", CASES, ids=["jacobi", "pcg", "pcg-cholesky"])
def test_a_gpu_and_a_core_solve_what_one_process_solves(
    case: Any, fits: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workload, variant, explicit = case
    params = workload.infer(dict(explicit), {})
    load, granule = workload.load(params), workload.granule(params)
    inputs = generated(workload, params)
    limit = workload.demand(params, "cuda").need([int(fits * load)])
    monkeypatch.setattr(CudaDevice, "usable_memory", lambda device: limit)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    devices = [(CORE, CpuDevice), (GPU, lambda info: CudaDevice(info, FakeRuntime(seed=1)))]
    core_rows = load // 3 // granule * granule
    reference = f"{type(workload).__module__}:{type(workload).__name__}"
    bench = IteratingBench(params, inputs, devices, workload=reference)
    with contextlib.closing(bench):
        bench.prepare(variant=variant)
        bench.iterate({0: core_rows, 1: load - core_rows})
        stops = bench.stopped(2)
        x = bench.arrays["x"].copy()

    expected = run(workload, params, inputs, (core_rows, load - core_rows))
    assert expected.converged
    assert all(abs(stop.iteration - expected.iterations) <= 2 for stop in stops)
    np.testing.assert_allclose(x, expected.outputs["x"], rtol=0, atol=1e-4 * np.abs(x).max())
