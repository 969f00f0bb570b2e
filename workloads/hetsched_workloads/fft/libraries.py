"""The kernels of each library: along any axes, of real data and with any norm, as `scipy.fft`.

Planes by FFTW and cuFFT, and transforms on OpenCL devices, have kernels of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched.workload import Kernel, KernelContext
from hetsched_workloads.fft.batched import SplitKernel
from hetsched_workloads.fft.call_sizes import call_size, default_size
from hetsched_workloads.fft.declaration import DTYPES, FftParams
from hetsched_workloads.recomputed import transforms

Transform = Callable[[str, Any, Any], None]
"""transform(SciPy's name, x, y): units x into y, which may be x."""
MAX_PLANNING_SECONDS = 5.0


def make(library: str, p: FftParams, chunk: int, context: KernelContext) -> Kernel:
    """Return a kernel for any number of units. `library`: name and version."""
    makers = {"scipy": _scipy, "ducc0": _ducc, "pyfftw": _fftw, "mkl": _mkl, "cupy": _scipy}
    transform = makers[library.partition(" ")[0]](p, context)

    def run(x: Any, y: Any) -> None:
        for step in p.transforms:
            transform(step, x, y)
            x = y

    if context.kind == "cuda":
        return SplitKernel(run, chunk)
    if p.is_planes:
        return SplitKernel(run, call_size(library, p, chunk, context, lambda size: run))
    return SplitKernel(run, default_size(p, context.threads))


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


def _mkl(p: FftParams, context: KernelContext) -> Transform:
    from hetsched_workloads.fft import mkl_cpu

    return mkl_cpu.make_transform(p)


def _fftw(p: FftParams, context: KernelContext) -> Transform:
    """Transform unit by unit in aligned memory: FFTW overwrites inputs of c2r."""
    import pyfftw

    from hetsched_workloads.fft.fftw_planning import planning_lock

    real = DTYPES[p.dtype].real
    dtypes = real if p.kind == "r2c" else p.dtype, real if p.kind == "c2r" else p.dtype
    source = pyfftw.empty_aligned(p.shape, dtypes[0])
    target = pyfftw.empty_aligned(p.output_shape, dtypes[1])
    with planning_lock:
        plans = {
            name: pyfftw.FFTW(
                source,
                target,
                axes=tuple(axis - 1 for axis in p.batch_axes),
                direction="FFTW_BACKWARD" if name.startswith("i") else "FFTW_FORWARD",
                flags=("FFTW_MEASURE",),
                threads=context.threads,
                planning_timelimit=MAX_PLANNING_SECONDS,
            )
            for name in p.transforms
        }

    def transform(name: str, x: Any, y: Any) -> None:
        factor = np.dtype(real).type(p.factor(name))
        for unit, result in zip(x, y, strict=True):
            source[...] = unit
            plans[name].execute()
            np.multiply(target, factor, out=result)

    return transform
