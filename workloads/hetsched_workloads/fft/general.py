"""Transforms along any axes, of real data and with any norm, as `scipy.fft` has them.

Planes of complex numbers, whose kernels are tuned, are in the file of each library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hetsched.errors import UsageError
from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched.workload.streams import unit_streams
from hetsched_workloads.fft.declaration import DTYPES, FftParams
from hetsched_workloads.recomputed import pieces

Transform = Callable[[str, Any, Any], None]
"""transform(SciPy's name, x, y): units x into y, which may be x."""
MAX_PLANNING_SECONDS = 5.0


def names(p: FftParams) -> tuple[str, ...]:
    """Return SciPy's names of the transforms, one after the other."""
    if p.kind != "c2c":
        return ({"r2c": "rfftn", "c2r": "irfftn"}[p.kind],)
    return {"forward": ("fftn",), "inverse": ("ifftn",), "roundtrip": ("fftn", "ifftn")}[
        p.direction
    ]


def make(library: str, p: FftParams, context: KernelContext) -> Kernel:
    """Return a kernel for any number of units.

    Raises
    ------
    UsageError
        The library transforms only complex numbers here.
    """
    makers = {"scipy": _scipy, "ducc0": _ducc, "pyfftw": _fftw, "mkl": _mkl, "cupy": _cupy}
    if library not in makers:
        raise UsageError(f"{library} computes no {p.kind} transforms here: use --devices cpu")
    transform = makers[library](p, context)

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        for part in pieces(context, inputs["x"]):
            source, target = inputs["x"][part], outputs["y"][part]
            for name in names(p):
                transform(name, source, target)
                source = target

    return kernel


def _keywords(p: FftParams) -> dict[str, Any]:
    return {"s": None, "axes": p.batch_axes, "norm": p.norm}


def _scipy(p: FftParams, context: KernelContext) -> Transform:
    import scipy.fft

    def transform(name: str, x: Any, y: Any) -> None:
        y[...] = getattr(scipy.fft, name)(x, **_keywords(p), workers=context.threads)

    return transform


def _cupy(p: FftParams, context: KernelContext) -> Transform:
    import cupyx.scipy.fft

    def transform(name: str, x: Any, y: Any) -> None:
        y[...] = getattr(cupyx.scipy.fft, name)(x, **_keywords(p))

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


def _factor(p: FftParams, name: str) -> float:
    """Return what an unscaled transform is multiplied by."""
    power = {"backward": 0.0, "ortho": 0.5, "forward": 1.0}[p.norm]
    return float(p.points ** -(1 - power if name.startswith("i") else power))


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
            for name in names(p)
        }

    def transform(name: str, x: Any, y: Any) -> None:
        factor = np.dtype(real).type(_factor(p, name))
        for unit, result in zip(x, y, strict=True):
            source[...] = unit
            plans[name].execute()
            np.multiply(target, factor, out=result)

    return transform


def _mkl(p: FftParams, context: KernelContext) -> Transform:
    """Transform all units of a piece by one call for each index of other axes."""
    from hetsched_workloads.fft.mkl_cpu import Transforms

    made: dict[tuple[str, int], Transforms] = {}

    def transform(name: str, x: Any, y: Any) -> None:
        key = name, len(x)
        if key not in made:
            made[key] = Transforms(x, y, p.batch_axes, name.startswith("i"), _factor(p, name))
        for begin_x, begin_y in _beginnings(p, x, y):
            made[key].run_units(begin_x, begin_y)

    return transform


def _beginnings(p: FftParams, x: Any, y: Any) -> Iterator[tuple[int, int]]:
    """Yield the addresses of the first transform's data, for each index of the other axes."""
    others = [axis for axis in range(1, x.ndim) if axis not in p.batch_axes]
    start_x, start_y = (array.__array_interface__["data"][0] for array in (x, y))
    for index in np.ndindex(*(x.shape[axis] for axis in others)):
        places = list(zip(index, others, strict=True))
        yield (
            start_x + sum(i * x.strides[axis] for i, axis in places),
            start_y + sum(i * y.strides[axis] for i, axis in places),
        )


def generate(p: FftParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
    """Fill `out` with real standard normal units, or their half spectra for kind c2r."""
    axes = tuple(axis - 1 for axis in p.batch_axes)
    shape = p.output_shape if p.kind == "c2r" else p.shape
    for unit, generator in enumerate(unit_streams(seed, array, first, len(out))):
        values = generator.standard_normal(shape)
        out[unit] = np.fft.rfftn(values, axes=axes) if p.kind == "c2r" else values


def reference(p: FftParams, unit: np.ndarray) -> np.ndarray:
    """Transform a unit by NumPy in double precision."""
    axes = tuple(axis - 1 for axis in p.batch_axes)
    result = unit.astype(np.float64 if p.kind == "r2c" else np.complex128)
    if p.direction != "roundtrip":
        result = getattr(np.fft, names(p)[0])(result, axes=axes, norm=p.norm)
    return result


def residual(p: FftParams, tolerance: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compute every unit again, (count,): the largest error over the rms of the other values."""
    errors = np.empty(len(y))
    roundings = 8 * float(np.finfo(y.dtype).eps)
    with np.errstate(all="ignore"):
        for i, unit in enumerate(x):
            if not np.isfinite(unit).all():
                errors[i] = np.inf if np.isfinite(y[i]).all() else 0.0
                continue
            expected = reference(p, unit)
            sizes = np.abs(expected)
            largest = float(sizes.max())
            rest = math.sqrt(max(0.0, float(np.square(sizes).sum()) - largest**2) / sizes.size)
            allowed = tolerance * rest + roundings * largest + float(np.finfo(y.dtype).tiny)
            errors[i] = np.abs(y[i] - expected).max() / allowed
    return errors
