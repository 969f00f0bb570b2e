"""Whole jobs on the GPU, alone and with the cores; times and predictions.

`jobs`: FFTs and matrix updates against SciPy. `solvers`: iterative ones against the cores alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import scipy.fft

import hetsched
from benchmarks.gpu.common import Report
from hetsched.config import load
from hetsched.errors import HetschedError

TIMEOUT_SECONDS = 60.0
FFT, MATRIX, PCG, HEAT, KMEANS, JACOBI = (
    f"hetsched_workloads.{name}"
    for name in ("fft:Fft", "matrix_update:MatrixUpdate", "pcg:Pcg", "heat:Heat", "kmeans:KMeans",
                 "jacobi:Jacobi")
)  # fmt: skip
"""Workloads by reference, since entry points need an installed package."""
RUNS = 4
BATCHES = ((256, 512, 512), (300, 500, 500), (64, 1009, 360), (10_000, 1, 8192))
SMALL_BATCHES = ((16, 64, 64), (40, 1, 512))
TOLERANCE = {"complex64": 1e-5, "complex128": 1e-13, "float32": 1e-4, "float64": 1e-12}
SOLVER_TOLERANCE = 2e-3
"""Largest difference, relative to the largest value; of solvers float32, and reductions whose
rounding depends on the device."""
Solvers = tuple[tuple[str, str, dict[str, Any]], ...]
SOLVERS: Solvers = (
    (PCG, "x", {"grid": "100x100x100"}),
    (HEAT, "final", {"grid": "4096x4096", "steps": 200}),
    (HEAT, "final", {"grid": "256x256x256", "steps": 100, "dtype": "float64"}),
    (KMEANS, "centroids",
     {"count": 1_000_000, "dimensions": 16, "clusters": 64, "max_iterations": 30}),
    (JACOBI, "x", {"n": 4096}),
    (PCG, "x", {"grid": "32x32x32", "preconditioner": "cholesky"}),
)  # fmt: skip
SMALL_SOLVERS: Solvers = (
    (HEAT, "final", {"grid": "48x32", "steps": 9}),
    (KMEANS, "centroids", {"count": 400, "dimensions": 4, "clusters": 5}),
)
"""Workload, the output that is compared, parameters."""


@dataclass(frozen=True)
class Case:
    """`expected`: None for what the cores alone compute; `output`: "" for the only one."""

    workload: str
    params: Mapping[str, Any]
    tolerance: float
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    output: str = ""
    expected: np.ndarray | None = None


def jobs(report: Report) -> None:
    compare(report, products(report.dry), 1 if report.dry else RUNS)


def solvers(report: Report) -> None:
    cases = (
        Case(workload, params, SOLVER_TOLERANCE, output=output)
        for workload, output, params in (SMALL_SOLVERS if report.dry else SOLVERS)
    )
    compare(report, cases, 1 if report.dry else 2)


def products(dry: bool) -> Iterator[Case]:
    """Yield jobs with what SciPy and NumPy compute."""
    rng = np.random.default_rng(0)
    for batch, dtype in itertools.product(SMALL_BATCHES if dry else BATCHES, TOLERANCE):
        if dtype.startswith("complex"):
            x = rng.standard_normal((*batch, 2)).view("complex128")[..., 0].astype(dtype)
            y = scipy.fft.fft2(x, workers=-1)
            yield Case(FFT, {}, TOLERANCE[dtype], {"x": x}, expected=y)
    rows, cols, inner = (64, 60, 32) if dry else (4096, 4000, 512)
    for dtype in ("float32", "float64"):
        c, a, b = (
            rng.standard_normal(shape).astype(dtype)
            for shape in ((rows, cols), (rows, inner), (inner, cols))
        )
        arrays = {"C": c, "A": a, "B": b}
        yield Case(MATRIX, {}, TOLERANCE[dtype], arrays, expected=c + a @ b)


def compare(report: Report, cases: Iterable[Case], runs: int) -> None:
    """Run each case on the GPU and on all devices, of which the first run may compile."""
    config, _ = load("emulated-gpu" if report.dry else "gpu")
    wrong = []
    with hetsched.Local(config) as local:
        infos, absent = local.devices()
        report.put(devices=msgspec.to_builtins(infos), absent=absent)
        link = tuple(info.name for info in infos if info.link)[:1]
        cores = tuple(info.name for info in infos if not info.link)
        for case in cases:
            expected, places = case.expected, [link, ()]
            if expected is None:
                places.insert(0, cores)
            for place in places:
                where = {"workload": case.workload, "params": case.params, "on": place or "all"}
                try:
                    found = [run(local, case, place) for _ in range(runs)]
                except HetschedError as error:
                    wrong.append(f"{case.workload}: {place}: {error}")
                    report.row("jobs", **where, error=str(error))
                    continue
                if expected is None:
                    expected = found[0][0]
                scale = np.abs(expected).max()
                error = float(max(np.abs(y - expected).max() / scale for y, _ in found))
                if not error <= case.tolerance:
                    wrong.append(f"{case.workload}: {place}: differs by {error:.2g}")
                reports = msgspec.to_builtins([each for _, each in found])
                report.row("jobs", **where, error=error, reports=reports)
            report.put(wrong=wrong)
    if wrong:
        raise RuntimeError("; ".join(wrong))


def run(local: hetsched.Local, case: Case, devices: tuple[str, ...]) -> tuple[np.ndarray, Any]:
    job = local.submit(case.workload, case.inputs or None, devices=devices, **case.params)
    result = job.result(TIMEOUT_SECONDS)
    return np.array(getattr(result, case.output) if case.output else result), job.report
