"""FFT by SciPy, which has no output argument: a few planes at a time, with a copy."""

from __future__ import annotations

import numpy as np
import scipy.fft

from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched_workloads.batches import cache_sized, pieces
from hetsched_workloads.fft.batched import CACHE_BYTES
from hetsched_workloads.fft.declaration import FftParams


def make(p: FftParams, chunk: int, context: KernelContext) -> Kernel:
    """Return a kernel for any number of planes."""
    # one call spreads its planes over its threads
    largest = cache_sized(p.plane_bytes, chunk, CACHE_BYTES * context.threads)

    def transform(planes: np.ndarray) -> np.ndarray:
        if p.direction != "inverse":
            planes = scipy.fft.fft2(planes, axes=(1, 2), workers=context.threads)
        if p.direction != "forward":
            is_temporary = p.direction == "roundtrip"
            planes = scipy.fft.ifft2(
                planes, axes=(1, 2), overwrite_x=is_temporary, workers=context.threads
            )
        return planes

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        for first, size in pieces(len(x), largest):
            y[first : first + size] = transform(x[first : first + size])

    return kernel
