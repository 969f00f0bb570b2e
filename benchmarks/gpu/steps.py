"""What a stage costs besides kernels and copies when a GPU and a core keep step."""

from __future__ import annotations

import os
import sys
from typing import Any

import hetsched
from benchmarks.gpu.common import Report
from benchmarks.gpu_check import ROOT
from hetsched.config import load

LIMIT = 100e-6
"""Seconds per barrier of a GPU and a core."""
STAGES = 2
"""Of an iteration, each with a barrier and a combined reduction."""
TIMEOUT_SECONDS = 30.0


def measure(report: Report) -> None:
    os.environ["PYTHONPATH"] += f"{os.pathsep}{ROOT / 'tests'}"
    sys.path.append(str(ROOT / "tests"))
    config, _ = load("emulated-gpu" if report.dry else "gpu")
    with hetsched.Local(config) as local:
        infos, _ = local.devices()
        link = next(info.name for info in infos if info.link)
        core = next(info.name for info in infos if info.is_plain_core)
        for devices in ((core,), (link,), (core, link)):
            for columns in (4, 4096):
                iterations = 50 if report.dry else 5000
                _run(report, local, devices, columns, iterations)
    both = [row["barrier"] for row in report.data["runs"] if len(row["on"]) == 2]
    report.put(barrier=min(both), limit=LIMIT, is_within=min(both) <= LIMIT)


def _run(
    report: Report,
    local: hetsched.Local,
    devices: tuple[str, ...],
    columns: int,
    iterations: int,
) -> None:
    job = local.submit(
        "diffusing_workload:Diffusion",
        devices=devices,
        rows=16,
        columns=columns,
        iterations=iterations,
        balance="none",
    )
    job.result(TIMEOUT_SECONDS)
    last: Any = job.report
    phases = {each.device: each.phases for each in last.devices}
    busy = max(each.compute + each.transfer for each in phases.values())
    report.row(
        "runs",
        on=devices,
        columns=columns,
        seconds_per_iteration=last.seconds / iterations,
        compute={name: each.compute / iterations for name, each in phases.items()},
        transfer={name: each.transfer / iterations for name, each in phases.items()},
        barrier=max(0.0, last.seconds - busy) / iterations / STAGES,
    )
