"""Iterations of a GPU and a core together: results, halo exchange, rows that don't fit."""

from __future__ import annotations

import itertools
import sys

import numpy as np

from benchmarks.gpu.common import Report, SmallMemory, device_info, open_runtime
from benchmarks.gpu_check import ROOT
from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.piece_sizes import piece_overhead
from hetsched.devices.cpu.device import CpuDevice
from hetsched.iterations.serial import run

sys.path.insert(0, str(ROOT / "tests"))

import iterating_bench
from diffusing_workload import Diffusion, DiffusionParams

TOLERANCE = 1e-12


def measure(report: Report) -> None:
    runtime, info = open_runtime(report.dry), device_info(report.dry)
    rows, columns = (96, 128) if report.dry else (8192, 1024)
    x = np.random.default_rng(1).standard_normal((rows, columns))

    devices = []

    def open_gpu(described: DeviceInfo) -> SmallMemory:
        devices.append(SmallMemory(described, runtime))
        return devices[-1]

    worst = 0.0
    borders, parts = ("periodic", "reflect", "fixed"), (0.5, 0.9, 1.0)
    for border, part, fits in itertools.product(borders, parts, (1.0, 0.4)):
        params = DiffusionParams(rows, columns, 20, border=border)
        demand = Diffusion().demand(params, "cuda")
        overhead = 4 * piece_overhead(Diffusion(), params)
        SmallMemory.limit = demand.need([int(fits * rows)]) + overhead
        gpu_rows = int(part * rows)
        bench = iterating_bench.IteratingBench(
            params, x, [(iterating_bench.CORE, CpuDevice), (info, open_gpu)], arena=1 << 30
        )
        bench.prepare()
        bench.iterate({0: rows - gpu_rows, 1: gpu_rows})
        bench.stopped(2)
        expected = run(Diffusion(), params, {"x": x}, (rows - gpu_rows, gpu_rows)).outputs["y"]
        error = float(np.abs(bench.arrays["y"] - expected).max())
        worst = max(worst, error)
        phases = [record.seconds for record in bench.records(1)]
        bench.close()
        devices.pop().close()  # unpins memory before it is mapped again
        report.row(
            "cases",
            border=border,
            gpu_rows=gpu_rows,
            fits=fits,
            error=error,
            compute=float(np.median([phase.compute for phase in phases])),
            transfer=float(np.median([phase.transfer for phase in phases])),
        )
    report.put(worst=worst)
    if not worst <= TOLERANCE:
        raise RuntimeError(f"a result differs by {worst} from that of one process")
