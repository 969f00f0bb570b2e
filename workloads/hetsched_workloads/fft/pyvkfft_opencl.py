"""FFT on an OpenCL device by VkFFT, several times as fast as reikna where it can be built."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyvkfft.opencl import VkFFTApp

from hetsched.workload import Kernel, KernelContext
from hetsched_workloads.fft.declaration import FftParams
from hetsched_workloads.fft.opencl_planes import Transform, make_kernel


def make(p: FftParams, chunk: int, context: KernelContext) -> Kernel:
    return make_kernel(p, context, plan)


def plan(queue: Any, p: FftParams) -> Transform:
    axes = tuple(axis - 1 for axis in p.batch_axes)
    app = VkFFTApp(p.shape, np.dtype(p.dtype), queue, axes=axes, inplace=False, norm=1)

    def transform(target: Any, source: Any, is_inverse: bool) -> None:
        (app.ifft if is_inverse else app.fft)(source, target)

    return transform
