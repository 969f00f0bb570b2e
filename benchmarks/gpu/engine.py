"""Whole jobs through the engine: on the GPU alone and with the cores, verified and timed."""

from __future__ import annotations

import statistics
from typing import Any

import msgspec
import numpy as np

import hetsched
from benchmarks.gpu.common import Report
from hetsched.config import load

FFT = "hetsched_workloads.fft:Fft"
MATRIX = "hetsched_workloads.matrix_update:MatrixUpdate"
"""Workloads by reference, since entry points need an installed package."""
RUNS = 7
TIMEOUT_SECONDS = 60.0


def measure(report: Report) -> None:
    config, _ = load("emulated-gpu" if report.dry else "gpu")
    config = msgspec.structs.replace(config, stealing=False)  # it would hide the spread
    with hetsched.Local(config) as local:
        infos, absent = local.devices()
        report.put(devices=msgspec.to_builtins(infos), absent=absent)
        link = next(info.name for info in infos if info.link)
        for dtype in ("complex64", "complex128"):
            batch = (16, 64, 64) if report.dry else (256, 512, 512)
            arrays = {"x": fill(local.empty(batch, dtype))}
            params = {"batch": "x".join(map(str, batch)), "dtype": dtype}
            run_cases(report, local, link, FFT, arrays, params)
        for dtype in ("float32", "float64"):
            rows, cols, inner = (64, 64, 32) if report.dry else (4096, 4096, 512)
            arrays = {
                "C": fill(local.empty((rows, cols), dtype)),
                "A": fill(local.empty((rows, inner), dtype)),
                "B": fill(local.empty((inner, cols), dtype)),
            }
            params = {"rows": rows, "cols": cols, "inner": inner, "dtype": dtype}
            run_cases(report, local, link, MATRIX, arrays, params)


def run_cases(
    report: Report,
    local: hetsched.Local,
    link: str,
    workload: str,
    arrays: dict[str, np.ndarray],
    params: dict[str, Any],
) -> None:
    """Run on the device with a link alone, then on all devices; verify the last run of each."""
    for devices in ((link,), ()):
        reports = []
        for number in range(RUNS):
            job = local.submit(
                workload, arrays, devices=devices, verify=number == RUNS - 1, **params
            )
            job.result(TIMEOUT_SECONDS)
            reports.append(job.report)
        last = reports[-1]
        report.row(
            "jobs",
            workload=workload,
            params=params,
            on=devices or "all",
            verified=last.verified,
            max_error=last.max_error,
            seconds=[job_report.seconds for job_report in reports],
            warm_seconds=statistics.median(
                job_report.seconds or 0.0 for job_report in reports[2:]
            ),
            spread=[job_report.spread for job_report in reports],
            predicted=[job_report.predicted_seconds for job_report in reports],
            last=msgspec.to_builtins(last),
        )
        if not last.verified:
            raise RuntimeError(f"{workload} {params} on {devices or 'all'}: wrong results")


def fill(array: np.ndarray) -> np.ndarray:
    """Fill with normal values quickly: one row or plane, each time with another factor."""
    real = np.zeros(0, array.dtype).real.dtype
    values = array.view(real).reshape(len(array), -1)
    template = np.random.default_rng(0).standard_normal(values.shape[1]).astype(real)
    for index, row in enumerate(values):
        np.multiply(template, 1 + index % 13, out=row)
    return array
