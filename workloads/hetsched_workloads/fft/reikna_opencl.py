"""FFT on an OpenCL device by reikna, which generates its kernels in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import reikna.cluda
import reikna.core
import reikna.fft

from hetsched.workload import Kernel, KernelContext
from hetsched_workloads.fft.declaration import FftParams
from hetsched_workloads.fft.opencl_planes import Transform, make_kernel


def make(p: FftParams, chunk: int, context: KernelContext) -> Kernel:
    return make_kernel(p, context, plan)


def plan(queue: Any, p: FftParams) -> Transform:
    axes = tuple(axis - 1 for axis in p.batch_axes)
    transform = reikna.fft.FFT(reikna.core.Type(np.dtype(p.dtype), p.shape), axes=axes)
    compiled: Transform = transform.compile(reikna.cluda.ocl_api().Thread(queue))
    return compiled
