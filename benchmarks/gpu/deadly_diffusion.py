"""Diffusion of which a kernel on the GPU ends its own process, once."""

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
    """`die_at`: the call of a kernel that ends the process that has the module `victim`, if it is
    the one that makes the file `marker`."""

    marker: str = ""
    die_at: int = 0
    victim: str = ""


class DeadlyDiffusion(Diffusion):
    name = "deadly-diffusion"
    Params = DeadlyParams

    def variants(self, kind: str) -> Sequence[Variant]:
        return (Variant("numpy", "1", make_deadly),)


def make_deadly(p: Any, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    kernels = dict(make(p, load, context))
    smooth = kernels["smooth"]
    epochs.MAX_TIME = 1e-9  # rows are saved as rarely as they may be
    count = 0

    def deadly(rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Any) -> None:
        nonlocal count
        count += 1
        if count == p.die_at and p.victim in sys.modules and not Path(p.marker).exists():
            Path(p.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        smooth(rows, inputs, outputs, values, partials)

    return {**kernels, "smooth": deadly}
