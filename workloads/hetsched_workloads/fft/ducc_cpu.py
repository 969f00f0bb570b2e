"""FFT by ducc0: the whole chunk in one call, no plans to keep."""

from __future__ import annotations

import ducc0

from hetsched.workload import Arrays, Kernel, KernelPlace
from hetsched_workloads.fft.declaration import FftParams

UNNORMALISED, BY_SIZE = 0, 2
"""ducc0's `inorm`: no factor, 1/n."""


def make(p: FftParams, chunk: int, place: KernelPlace) -> Kernel:
    """A kernel for any number of planes."""

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        if p.direction != "inverse":
            ducc0.fft.c2c(x, (1, 2), True, UNNORMALISED, y, place.threads)
            x = y
        if p.direction != "forward":
            ducc0.fft.c2c(x, (1, 2), False, BY_SIZE, y, place.threads)

    return kernel
