"""Diffusion whose kernels end their own process in given iterations."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diffusing_workload import Diffusion, DiffusionParams, make

from hetsched.device_process import epochs
from hetsched.workload import Arrays, KernelContext, Rows, StageKernel, Values, Variant


class DeadlyParams(DiffusionParams, frozen=True):
    """`calls`: of the first rows' kernel; each ends its process, once (`markers`: folder).

    `victim`: instead, of the kernel in the process that has this module; and devices save their
    rows as rarely as they may.
    """

    markers: str = ""
    calls: tuple[int, ...] = ()
    victim: str = ""


class DeadlyDiffusion(Diffusion):
    name = "deadly-diffusion"
    Params = DeadlyParams

    def variants(self, kind: str) -> Sequence[Variant]:
        return (Variant("numpy", "1", make_deadly),)


def make_deadly(p: DeadlyParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    kernels = dict(make(p, load, context))
    smooth = kernels["smooth"]
    if p.victim:
        epochs.MAX_TIME = 1e-9
    count = 0

    def deadly(rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Any) -> None:
        nonlocal count
        if p.victim in sys.modules if p.victim else rows.is_first:
            count += 1
            marker = Path(p.markers) / str(count)
            if count in p.calls and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        smooth(rows, inputs, outputs, values, partials)

    return {**kernels, "smooth": deadly}
