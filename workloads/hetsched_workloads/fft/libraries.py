"""The kernels of each library: along any axes, of real data and with any norm, as `scipy.fft`.

Planes by FFTW and cuFFT, and transforms on OpenCL devices, have kernels of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from hetsched.bounded_cache import BoundedCache
from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched_workloads.fft import FftParams
from hetsched_workloads.fft.tuning import Tuned, default_size
from hetsched_workloads.recomputed import transforms

Transform = Callable[[str, Any, Any], None]
"""transform(SciPy's name, x, y): units x into y, which may be x."""
MAX_PLANS = 64
"""Of a thread, the most recently used ones. Arbitrary: those of about five kinds of job."""


class OwnPlans(threading.local):
    """The calling thread's plans, since a plan serves one thread at a time.

    They are kept from job to job, so a warm `make` takes microseconds.
    """

    def __init__(self) -> None:
        self.kept: BoundedCache[Hashable, Any] = BoundedCache(max_entries=MAX_PLANS)


def pointer(array: np.ndarray, name: str) -> int:
    """Return the address of a C-contiguous array. Raises ValueError for any other."""
    if not array.flags.c_contiguous:
        raise ValueError(f"{name}: not C-contiguous, strides {array.strides}")
    return int(array.__array_interface__["data"][0])


class SplitKernel:
    """Transforms a chunk, at most `units_per_call` units at a time."""

    def __init__(self, p: FftParams, transform: Transform, units_per_call: int) -> None:
        self._steps, self._transform, self.units_per_call = p.transforms, transform, units_per_call

    def __call__(self, inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        for first in range(0, len(x), self.units_per_call):
            part = slice(first, first + self.units_per_call)
            self.transform(x[part], y[part])

    def transform(self, source: Any, target: Any) -> None:
        for step in self._steps:
            self._transform(step, source, target)
            source = target


def make(library: str, p: FftParams, chunk: int, context: KernelContext) -> Kernel:
    """Return a kernel for any number of units. `library`: name and version."""
    name = library.partition(" ")[0]
    if name == "cupy":
        if p.is_planes:
            from hetsched_workloads.fft import cupy_cuda

            return cupy_cuda.make(p, chunk, context)
        return SplitKernel(p, _scipy(p, context), chunk)
    if name == "pyfftw":
        from hetsched_workloads.fft import fftw

        planned = fftw.FftwTransform(library, p, chunk, context)
        return SplitKernel(p, planned, planned.units_per_call)
    if name == "mkl":
        from hetsched_workloads.fft import mkl_cpu

        transform = mkl_cpu.make_transform(p)
    else:
        transform = {"scipy": _scipy, "ducc0": _ducc}[name](p, context)
    kernel = SplitKernel(p, transform, default_size(p, context.threads))
    if p.is_planes:
        known = Tuned(library, p, context.threads, context.cache)
        kernel.units_per_call = known.call_size(chunk, context, lambda size: kernel.transform)
    return kernel


def _scipy(p: FftParams, context: KernelContext) -> Transform:
    fft, keywords = transforms(context)
    keywords = {"axes": p.batch_axes, "norm": p.norm, **keywords}

    def transform(name: str, x: Any, y: Any) -> None:
        y[...] = getattr(fft, name)(x, **keywords)

    return transform


def _ducc(p: FftParams, context: KernelContext) -> Transform:
    import ducc0.fft

    axes, scaled = p.batch_axes, {"backward": 0, "ortho": 1, "forward": 2}[p.norm]
    length = p.output_shape[axes[-1] - 1]

    def transform(name: str, x: Any, y: Any) -> None:
        is_forward = not name.startswith("i")
        options = (is_forward, scaled if is_forward else 2 - scaled, y, context.threads)
        if p.kind == "r2c":
            ducc0.fft.r2c(x, axes, *options)
        elif p.kind == "c2r":
            ducc0.fft.c2r(x, axes, length, *options)
        else:
            ducc0.fft.c2c(x, axes, *options)

    return transform
