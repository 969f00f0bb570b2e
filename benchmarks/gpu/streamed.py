"""Rows that don't fit: how well copies and kernels of their pieces overlap."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.gpu.common import Report, SmallMemory, device_info, open_runtime
from benchmarks.gpu.pipeline import measure_rates
from benchmarks.gpu_check import ROOT
from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.rows import piece_overhead
from hetsched.devices.accelerator.runtime import Runtime

sys.path.insert(0, str(ROOT / "tests"))

import iterating_bench
from hetsched_workloads.heat import Heat

STEPS = 12


def measure(report: Report) -> None:
    runtime, info = open_runtime(report.dry), device_info(report.dry)
    workload = Heat()
    grid = "96x64" if report.dry else "8192x16384"
    params = workload.infer({"grid": grid, "steps": STEPS}, {})
    rows, columns = params.shape
    x = np.random.default_rng(1).standard_normal((rows, columns), "float32")
    row_bytes = 4 * columns
    rates = measure_rates(runtime, min(rows * row_bytes, 64 << 20))
    h2d, d2h = rates.h2d, rates.d2h
    report.put(grid=grid, h2d_rate=h2d, d2h_rate=d2h)
    demand, overhead = workload.demand(params, "cuda"), piece_overhead(workload, params)
    results = {}
    for fits in (1.0, 0.8, 0.4, 0.1):
        SmallMemory.limit = demand.need([int(fits * rows)]) + 4 * overhead
        seconds, kernels, results[fits] = run(runtime, info, params, x)
        streamed = (1 - fits) * rows * row_bytes
        copies = (streamed / h2d, streamed / d2h)
        serial, bound = kernels + sum(copies), max(kernels, *copies)
        report.row(
            "cases",
            fits=fits,
            seconds_per_iteration=seconds,
            kernels=kernels,
            serial=serial,
            bound=bound,
            overlapped=(serial - seconds) / (serial - bound) if fits < 1 else None,
            is_equal=bool(np.array_equal(results[fits], results[1.0])),
        )
    if not all(np.array_equal(values, results[1.0]) for values in results.values()):
        raise RuntimeError("streamed rows have other results than rows that fit")


def run(
    runtime: Runtime, info: DeviceInfo, params: Any, x: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """Return the seconds of an iteration and of its kernels, and the result."""
    device = SmallMemory(info, runtime)
    bench = iterating_bench.IteratingBench(
        params,
        {"initial": x},
        [(info, lambda described: device)],
        workload="hetsched_workloads.heat:Heat",
        arena=8 << 30,
        saves=True,
    )
    bench.prepare(variant="numpy" if runtime.kernels == "cpu" else "cupy")
    bench.iterate({0: len(x)})
    bench.stopped(1)
    phases = [record.seconds for record in bench.records(0)][STEPS // 2 :]
    result = bench.arrays["final"].copy()
    bench.close()
    device.close()  # unpins memory before it is mapped again
    seconds = float(np.median([phase.compute + phase.transfer for phase in phases]))
    return seconds, float(np.median([phase.compute for phase in phases])), result
