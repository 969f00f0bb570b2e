"""The GPU dies with rows that only its memory has: the job goes back and the result is right."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import hetsched
from benchmarks.gpu.common import Report
from benchmarks.gpu_check import ROOT
from hetsched.config import parse
from hetsched.device_kinds import DEVICE_KINDS

MACHINE = """
[[device]]
kind = "cpu"
count = 2

[[device]]
kind = "gpu"
"""
ROWS, COLUMNS, ITERATIONS, DIE_AT = 60, 64, 300, 54
TIMEOUT_SECONDS = 30.0
TOLERANCE = 1e-10


def measure(report: Report) -> None:
    tests = ROOT / "tests"
    folders = [str(tests), str(tests / "devices")]
    os.environ["PYTHONPATH"] = os.pathsep.join([os.environ["PYTHONPATH"], *folders])
    sys.path += folders
    with tempfile.TemporaryDirectory() as scratch:
        if report.dry:
            used = Path(scratch) / "used"
            used.write_text("0")
            os.environ["FAKE_GPU_USED"] = str(used)
            DEVICE_KINDS["cuda"] = msgspec.structs.replace(
                DEVICE_KINDS["cuda"], package="fake_gpu"
            )
        _lose(report, scratch)


def _lose(report: Report, scratch: str) -> None:
    from diffusing_workload import DiffusionParams, diffused

    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    with hetsched.Local(parse(MACHINE, "gpu check"), learn=False) as local:
        job = local.submit(
            "benchmarks.gpu.deadly_diffusion:DeadlyDiffusion",
            x,
            rows=ROWS,
            columns=COLUMNS,
            iterations=ITERATIONS,
            balance="none",
            marker=str(Path(scratch) / "died"),
            die_at=DIE_AT,
            victim="fake_gpu.device" if report.dry else "cupy",
        )
        y = job.result(TIMEOUT_SECONDS).y
        last: Any = job.report
    params = DiffusionParams(rows=ROWS, columns=COLUMNS, iterations=ITERATIONS)
    difference = float(np.abs(y - diffused(params, x)[0]).max())
    report.put(difference=difference, notes=last.notes, devices=msgspec.to_builtins(last.devices))
    if difference > TOLERANCE:
        raise RuntimeError(f"the result differs by {difference}")
    if not any("were lost and repeated" in note for note in last.notes):
        raise RuntimeError(f"the GPU was to die, but: {last.notes}")
