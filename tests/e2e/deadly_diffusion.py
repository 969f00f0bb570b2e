"""Diffusion whose kernels end their own process in given iterations."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diffusing_workload import Diffusion, DiffusionParams, make

from hetsched.workload import Arrays, KernelContext, Rows, StageKernel, Values, Variant


class DeadlyParams(DiffusionParams, frozen=True):
    """`calls`: of the first rows' kernel; each ends its process, once (`markers`: folder)."""

    markers: str = ""
    calls: tuple[int, ...] = ()


class DeadlyDiffusion(Diffusion):
    name = "deadly-diffusion"
    Params = DeadlyParams

    def variants(self, kind: str) -> Sequence[Variant]:
        return (Variant("numpy", "1", make_deadly),) if kind == "cpu" else ()


def make_deadly(p: DeadlyParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    kernels = dict(make(p, load, context))
    smooth = kernels["smooth"]
    count = 0

    def deadly(rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Any) -> None:
        nonlocal count
        if rows.is_first:
            count += 1
            marker = Path(p.markers) / str(count)
            if count in p.calls and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        smooth(rows, inputs, outputs, values, partials)

    return {**kernels, "smooth": deadly}
