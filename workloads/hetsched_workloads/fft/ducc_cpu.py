"""FFT by ducc0, which needs no plans."""

from __future__ import annotations

import ducc0
import numpy as np

from hetsched.workload import Kernel, KernelContext
from hetsched_workloads.fft.batched import SplitKernel
from hetsched_workloads.fft.call_sizes import call_size
from hetsched_workloads.fft.declaration import FftParams

UNNORMALISED, BY_SIZE = 0, 2
"""ducc0's `inorm`: no factor, 1/n."""


def make(p: FftParams, chunk: int, context: KernelContext) -> Kernel:
    """Return a kernel for any number of planes.

    ducc0 transforms the rows of all planes of a call, then their columns: with all planes of a
    chunk in one call the columns miss the cache, which costs 5 to 15 %.
    """

    def transform(x: np.ndarray, y: np.ndarray) -> None:
        if p.direction != "inverse":
            ducc0.fft.c2c(x, (1, 2), True, UNNORMALISED, y, context.threads)
            x = y
        if p.direction != "forward":
            ducc0.fft.c2c(x, (1, 2), False, BY_SIZE, y, context.threads)

    library = f"ducc0 {ducc0.__version__}"
    return SplitKernel(transform, call_size(library, p, chunk, context, lambda size: transform))
