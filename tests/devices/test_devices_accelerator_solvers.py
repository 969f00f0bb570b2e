"""Solvers on the accelerator over the simulated runtime, together with a core.

Rows that don't fit the GPU pass through it in pieces of whole granules: the bits are the same.
"""

from __future__ import annotations

import contextlib
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerator_toys import simulated_gpu
from hetsched_workloads.heat import Heat
from hetsched_workloads.jacobi import Jacobi
from hetsched_workloads.pcg import Pcg
from iterating_bench import CORE, IteratingBench

from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.piece_sizes import piece_overhead, piece_sizes
from hetsched.devices.cpu.device import CpuDevice
from hetsched.iterations.serial import run


def generated(workload: Any, params: Any) -> dict[str, np.ndarray]:
    inputs = {}
    for spec in workload.arrays(params):
        if spec.is_input:
            inputs[spec.name] = np.empty(spec.shape(workload.load(params)), spec.dtype)
            workload.generate(params, 3, spec.name, 0, inputs[spec.name])
    return inputs


CASES: list[Any] = [
    (Jacobi(), "numpy", {"n": 96}, "x"),
    (Pcg(), "scipy", {"grid": "5x6x7", "block": 20}, "x"),
    pytest.param(
        (Pcg(), "scipy", {"grid": "5x6x7", "preconditioner": "cholesky", "block": 20}, "x"),
        marks=pytest.mark.skipif(
            importlib.util.find_spec("numba") is None, reason="incomplete factors need numba"
        ),
    ),
    (Heat(), "numpy", {"grid": "40x9", "steps": 6}, "final"),
]


@pytest.mark.parametrize("case", CASES, ids=["jacobi", "pcg", "pcg-cholesky", "heat"])
def test_a_gpu_and_a_core_solve_what_one_process_solves(
    case: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workload, variant, explicit, output = case
    params = workload.infer(dict(explicit), {})
    load, granule = workload.load(params), workload.granule(params)
    inputs = generated(workload, params)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(f"{piece_overhead.__module__}.ALLOCATION_BYTES", 0)  # rows are small here
    devices = [
        (CORE, CpuDevice),
        simulated_gpu(1),
    ]
    core_rows = load // 4 // granule * granule
    reference = f"{type(workload).__module__}:{type(workload).__name__}"
    results = []
    demand, overhead = workload.demand(params, "cuda"), piece_overhead(workload, params)
    for fits in (load, 3 * granule):
        limit = demand.need([fits]) + 4 * overhead
        limited = replace(demand, limit=limit)
        is_streamed = piece_sizes(load - core_rows, granule, limited, overhead).slots > 0
        assert is_streamed == (fits < load)
        monkeypatch.setattr(Accelerator, "usable_memory", lambda device, limit=limit: limit)
        bench = IteratingBench(params, inputs, devices, workload=reference)
        with contextlib.closing(bench):
            bench.prepare(variant=variant)
            bench.iterate({0: core_rows, 1: load - core_rows})
            bench.stopped(2)
            results.append(bench.arrays[output].copy())

    held, streamed = results
    expected = run(workload, params, inputs, (core_rows, load - core_rows), variant=variant)
    np.testing.assert_array_equal(streamed, held)
    np.testing.assert_array_equal(held, expected.outputs[output])


@pytest.mark.parametrize("case", CASES, ids=["jacobi", "pcg", "pcg-cholesky", "heat"])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_rows_that_a_gpu_gets_or_loses_change_nothing(
    case: Any, is_streamed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workload, variant, explicit, output = case
    params = workload.infer(dict(explicit), {})
    load, granule = workload.load(params), workload.granule(params)
    inputs = generated(workload, params)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(f"{piece_overhead.__module__}.ALLOCATION_BYTES", 0)
    demand, overhead = workload.demand(params, "cuda"), piece_overhead(workload, params)
    limit = demand.need([3 * granule if is_streamed else load]) + 4 * overhead
    monkeypatch.setattr(Accelerator, "usable_memory", lambda device: limit)
    devices = [
        (CORE, CpuDevice),
        simulated_gpu(1),
    ]
    granules = load // granule
    ends = [granule * (granules * part // 8) for part in (4, 2, 5)]
    reference = f"{type(workload).__module__}:{type(workload).__name__}"
    bench = IteratingBench(params, inputs, devices, workload=reference, saves=True)
    with contextlib.closing(bench):
        bench.prepare(variant=variant)
        bench.iterate({0: ends[0], 1: load - ends[0]}, paced=True)
        for number, end in enumerate(ends):
            if number:
                bench.control.propose((0, end, load))
            bench.control.allow(2 * number + 2)
            if number < len(ends) - 1:
                bench.wait_for_report(1, 2 * number + 2)
        bench.control.allow(1000)
        bench.stopped(2)
        result = bench.arrays[output].copy()

    expected = run(workload, params, inputs, (ends[0], load - ends[0]), variant=variant)
    np.testing.assert_array_equal(result, expected.outputs[output])
