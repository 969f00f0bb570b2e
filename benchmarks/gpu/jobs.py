"""Twenty whole jobs on the GPU, alone and with the cores, against SciPy; times and predictions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import scipy.fft

import hetsched
from benchmarks.gpu.common import Report
from hetsched.config import load

FFT = "hetsched_workloads.fft:Fft"
MATRIX = "hetsched_workloads.matrix_update:MatrixUpdate"
"""Workloads by reference, since entry points need an installed package."""
RUNS = 4
TIMEOUT_SECONDS = 60.0
BATCHES = ((256, 512, 512), (300, 500, 500), (64, 1009, 360), (10_000, 1, 8192))
SMALL_BATCHES = ((16, 64, 64), (7, 50, 50), (5, 31, 36), (40, 1, 512))
TOLERANCE = {"complex64": 1e-5, "complex128": 1e-13, "float32": 1e-4, "float64": 1e-12}
"""Largest difference, relative to the largest value."""

Case = tuple[str, str, dict[str, Any], dict[str, np.ndarray], np.ndarray]


def measure(report: Report) -> None:
    config, _ = load("emulated-gpu" if report.dry else "gpu")
    rng = np.random.default_rng(0)
    wrong = 0
    with hetsched.Local(config) as local:
        infos, absent = local.devices()
        report.put(devices=msgspec.to_builtins(infos), absent=absent)
        link = next(info.name for info in infos if info.link)
        for dtype, workload, params, arrays, expected in cases(report.dry, rng):
            for devices in ((link,), ()):
                found: list[tuple[np.ndarray, Any]] = []
                for _ in range(1 if report.dry else RUNS):
                    job = local.submit(workload, arrays, devices=devices, **params)
                    found.append((job.result(TIMEOUT_SECONDS), job.report))
                error = max(np.abs(y - expected).max() / np.abs(expected).max() for y, _ in found)
                wrong += not error <= TOLERANCE[dtype]
                report.row(
                    "jobs",
                    workload=workload,
                    params=params,
                    on=devices or "all",
                    error=float(error),
                    seconds=[last.seconds for _, last in found],
                    predicted=[last.predicted_seconds for _, last in found],
                    spread=[last.spread for _, last in found],
                )
    report.put(wrong=wrong)
    if wrong:
        raise RuntimeError(f"{wrong} jobs gave wrong results")


def cases(dry: bool, rng: np.random.Generator) -> Iterator[Case]:
    """Yield ten jobs: dtype, workload, parameters, inputs and the expected output."""
    for batch, dtype in itertools.product(SMALL_BATCHES if dry else BATCHES, TOLERANCE):
        if dtype.startswith("complex"):
            x = rng.standard_normal((*batch, 2)).view("complex128")[..., 0].astype(dtype)
            yield dtype, FFT, {}, {"x": x}, scipy.fft.fft2(x, workers=-1)
    rows, cols, inner = (64, 60, 32) if dry else (4096, 4000, 512)
    for dtype in ("float32", "float64"):
        c, a, b = (
            rng.standard_normal(shape).astype(dtype)
            for shape in ((rows, cols), (rows, inner), (inner, cols))
        )
        yield dtype, MATRIX, {}, {"C": c, "A": a, "B": b}, c + a @ b
