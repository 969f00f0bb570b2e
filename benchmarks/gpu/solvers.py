"""The five solvers: results of the GPU, alone and with all cores, against those of the cores."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import numpy as np

import hetsched
from benchmarks.gpu.common import Report
from hetsched.config import load
from hetsched.errors import HetschedError

TIMEOUT_SECONDS = 60.0
TOLERANCE = 2e-3
"""Largest difference between results, relative to the largest value: float32, and reductions whose
rounding depends on the device."""
PCG, HEAT = "hetsched_workloads.pcg:Pcg", "hetsched_workloads.heat:Heat"
SOLVERS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "pcg": (PCG, "x", {"grid": "100x100x100"}, {"grid": "6x6x6"}),
    "heat": (HEAT, "final", {"grid": "4096x4096", "steps": 200}, {"grid": "48x32", "steps": 9}),
    "heat-3d": (
        HEAT, "final", {"grid": "256x256x256", "steps": 100, "dtype": "float64"},
        {"grid": "12x9x8", "steps": 9, "dtype": "float64"},
    ),
    "kmeans": (
        "hetsched_workloads.kmeans:KMeans", "centroids",
        {"count": 1_000_000, "dimensions": 16, "clusters": 64, "max_iterations": 30},
        {"count": 400, "dimensions": 4, "clusters": 5},
    ),
    "jacobi": ("hetsched_workloads.jacobi:Jacobi", "x", {"n": 4096}, {"n": 96}),
    "pcg-cholesky": (
        PCG, "x", {"grid": "32x32x32", "preconditioner": "cholesky"},
        {"grid": "6x6x6", "preconditioner": "cholesky", "block": 30},
    ),
}  # fmt: skip
"""Name -> workload, the output that is compared, parameters on a GPU and in a dry run."""


def measure(report: Report) -> None:
    config, _ = load("emulated-gpu" if report.dry else "gpu")
    wrong = []
    with hetsched.Local(config) as local:
        infos, _ = local.devices()
        link = next(info.name for info in infos if info.link)
        cores = tuple(info.name for info in infos if not info.link)
        for name, (workload, output, large, small) in SOLVERS.items():
            params = small if report.dry else large
            expected, iterations = None, 0
            for on in (cores, (link,), (link,), ()):
                place = "cores" if on == cores else on or "all"
                began = time.perf_counter()
                job = local.submit(workload, devices=on, **params)
                try:
                    values = np.array(getattr(job.result(TIMEOUT_SECONDS), output))
                except HetschedError as error:
                    report.row("runs", solver=name, on=place, error=str(error))
                    wrong.append(f"{name}: {place}: {error}")
                    continue
                last: Any = job.report
                if expected is None:
                    expected, iterations = values, last.iterations
                difference = float(np.abs(values - expected).max() / np.abs(expected).max())
                unlike = abs(last.iterations - iterations) > 1 + iterations // 20
                if unlike or not difference <= TOLERANCE:
                    wrong.append(f"{name}: {place}: differs by {difference:.2g}")
                report.row(
                    "runs",
                    solver=name,
                    params=params,
                    on=place,
                    difference=difference,
                    iterations=last.iterations,
                    residual=last.residual,
                    seconds=last.seconds,
                    seconds_per_iteration=last.seconds / max(1, last.iterations),
                    with_start_and_end=time.perf_counter() - began,
                    moves=last.moves,
                    notes=last.notes,
                    devices=msgspec.to_builtins(last.devices),
                )
            report.put(wrong=wrong)
    if wrong:
        raise RuntimeError("; ".join(wrong))
