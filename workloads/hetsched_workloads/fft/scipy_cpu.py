"""FFT by SciPy, which has no output argument: a few planes at a time, with a copy."""

from __future__ import annotations

import numpy as np
import scipy.fft

from hetsched.workload import Kernel, KernelContext
from hetsched_workloads.fft.batched import SplitKernel
from hetsched_workloads.fft.call_sizes import call_size
from hetsched_workloads.fft.declaration import FftParams


def make(p: FftParams, chunk: int, context: KernelContext) -> Kernel:
    def transform(x: np.ndarray, y: np.ndarray) -> None:
        if p.direction != "inverse":
            x = scipy.fft.fft2(x, workers=context.threads)
        if p.direction != "forward":
            is_temporary = p.direction == "roundtrip"
            x = scipy.fft.ifft2(x, overwrite_x=is_temporary, workers=context.threads)
        y[...] = x

    library = f"scipy {scipy.__version__}"
    return SplitKernel(transform, call_size(library, p, chunk, context, lambda size: transform))
