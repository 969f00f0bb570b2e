"""FFT by SciPy, which has no output argument: a few planes at a time, with a copy."""

from __future__ import annotations

import numpy as np
import scipy.fft

from hetsched.workload import Kernel, KernelContext
from hetsched_workloads.fft.batched import SplitKernel
from hetsched_workloads.fft.call_sizes import call_size
from hetsched_workloads.fft.declaration import FftParams


def make(p: FftParams, chunk: int, context: KernelContext) -> Kernel:
    """Return a kernel for any number of planes."""

    def transform(planes: np.ndarray) -> np.ndarray:
        if p.direction != "inverse":
            planes = scipy.fft.fft2(planes, axes=(1, 2), workers=context.threads)
        if p.direction != "forward":
            is_temporary = p.direction == "roundtrip"
            planes = scipy.fft.ifft2(
                planes, axes=(1, 2), overwrite_x=is_temporary, workers=context.threads
            )
        return planes

    def call(x: np.ndarray, y: np.ndarray) -> None:
        y[...] = transform(x)

    largest = call_size(f"scipy {scipy.__version__}", p, chunk, context, lambda size: call)
    return SplitKernel(call, largest)
