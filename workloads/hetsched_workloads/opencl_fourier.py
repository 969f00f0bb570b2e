"""Fourier transforms on OpenCL devices, unit by unit, and workloads by them, called as these are.

A library's plan takes seconds to compile. So there is one, for a unit, with arrays of its own:
kernels of libraries know of no offsets.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array

from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched_workloads.convolve import ConvolveParams
from hetsched_workloads.fft import DTYPES, FftParams
from hetsched_workloads.opencl_program import Program, check_precision
from hetsched_workloads.power_spectrum import PowerSpectrumParams
from hetsched_workloads.welch import WelchParams, window_of

PAD = """
__kernel void pad(OUT(COMPLEX, z), IN(REAL, x), int rows, int cols)
{
    TO(COMPLEX, z); AT(REAL, x);
    const ulong col = get_global_id(0), row = get_global_id(1);
    COMPLEX value = 0;
    if (row < rows && col < cols)
        value.x = x[row * cols + col];
    z[row * get_global_size(0) + col] = value;
}
"""
"""A real matrix as a complex one, of at least its size."""


Transform = Callable[..., None]
"""transform(target, source, is_inverse=False) of arrays that begin with their buffers: forward
unscaled, inverse by 1/n."""


class Plan(NamedTuple):
    transform: Transform
    before: Any
    after: Any


def planning(
    library: str, context: KernelContext, shape: tuple[int, ...], real: str, axes: tuple[int, ...]
) -> Callable[[Any], Plan]:
    """Return what makes the plan of a kernel for a queue, and keeps it.

    Of arrays of complex numbers made of `real` ones. Raises UsageError: the device has no double
    precision.
    """
    module, make = {"pyvkfft": ("pyvkfft.opencl", _vkfft), "reikna": ("reikna.fft", _reikna)}[
        library
    ]
    importlib.import_module(module)  # now: a variant that can't be loaded is left out

    @functools.cache
    def plan(queue: Any) -> Plan:
        check_precision(queue.device, real)
        dtype = np.result_type(real, np.complex64)
        context.say(f"planning {'x'.join(map(str, shape))} {dtype} for OpenCL ...")
        transform = make(queue, shape, dtype, axes)
        return Plan(transform, *(pyopencl.array.empty(queue, shape, dtype) for _ in range(2)))

    return plan


def _vkfft(queue: Any, shape: tuple[int, ...], dtype: Any, axes: tuple[int, ...]) -> Transform:
    """Several times as fast as reikna where it can be built."""
    from pyvkfft.opencl import VkFFTApp

    app = VkFFTApp(shape, dtype, queue, axes=axes, inplace=False, norm=1)

    def transform(target: Any, source: Any, is_inverse: bool = False) -> None:
        (app.ifft if is_inverse else app.fft)(source, target)

    return transform


def _reikna(queue: Any, shape: tuple[int, ...], dtype: Any, axes: tuple[int, ...]) -> Transform:
    """Pure Python, which generates its kernels."""
    import reikna.cluda
    import reikna.core
    import reikna.fft

    plan = reikna.fft.FFT(reikna.core.Type(dtype, shape), axes=axes)
    compiled: Transform = plan.compile(reikna.cluda.ocl_api().Thread(queue))
    return compiled


# ---- workloads

CONVERSIONS = """
/* Along one axis, the first half of a spectrum of real values; or from it one with the same real
   part after an inverse transform, as that of a value and of its mirror image are equal. */
__kernel void resize(OUT(COMPLEX, new), IN(COMPLEX, old), int n_new, int n_old, int inner)
{
    TO(COMPLEX, new); AT(COMPLEX, old);
    const ulong i = get_global_id(0), line = i / inner / n_new, place = i / inner % n_new;
    const int has_image = n_new > n_old && place > 0 && 2 * place < n_new;
    COMPLEX value = 0;
    if (place < n_old)
        value = old[(line * n_old + place) * inner + i % inner] * (has_image ? 2 : 1);
    new[i] = value;
}
__kernel void real_part(OUT(REAL, y), IN(COMPLEX, z))
{
    TO(REAL, y); AT(COMPLEX, z);
    y[get_global_id(0)] = z[get_global_id(0)].x;
}
"""


def fft(p: FftParams, context: KernelContext, library: str) -> Kernel:
    """Units are sub-buffers, where the device lets one begin there, or pass through a buffer.

    So do real ones, which are transformed as complex ones.
    """
    real = DTYPES[p.dtype].real
    shape = p.output_shape if p.kind == "c2r" else p.shape
    plan_for = planning(library, context, shape, real, tuple(axis - 1 for axis in p.batch_axes))
    program = Program(PAD + CONVERSIONS, real, context, "conversions")
    last = p.batch_axes[-1]
    sizes = np.array([p.output_shape[last - 1], p.shape[last - 1], math.prod(p.shape[last:])], "i")
    power = {"backward": 0.0, "ortho": 0.5, "forward": 1.0}[p.norm]
    power *= sum(1 if name.startswith("i") else -1 for name in p.transforms)
    factor = np.dtype(real).type(p.points**power)

    def load(unit: Any, target: Any) -> None:
        if p.kind == "r2c":
            program("pad", (unit.size, 1), None, target, unit, np.int32(1), np.int32(unit.size))
        elif p.kind == "c2r":
            program("resize", (target.size,), None, target, unit, *sizes)
        else:
            _copy(unit, target)

    def store(unit: Any, result: Any) -> None:
        if p.kind == "r2c":
            program("resize", (unit.size,), None, unit, result, *sizes)
        elif p.kind == "c2r":
            program("real_part", (unit.size,), None, unit, result)
        else:
            _copy(result, unit)

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        plan = plan_for(y.queue)
        for unit in range(len(x)):
            own = [_aligned(array[unit]) if p.kind == "c2c" else None for array in (x, y)]
            source, target = own
            if source is None:
                source = plan.before
                load(x[unit], source)
            for number, name in enumerate(p.transforms, 1):
                is_last = number == len(p.transforms)
                spare = plan.before if number == 2 else plan.after
                result = target if is_last and target is not None else spare
                plan.transform(result, source, name.startswith("i"))
                source = result
            if factor != 1:
                source *= factor
            if target is None:
                store(y[unit], source)

    return kernel


def _aligned(plane: Any) -> Any:
    """Return the plane as an array without an offset; None if the device doesn't allow it."""
    if plane.offset % max(1, plane.queue.device.mem_base_addr_align // 8):
        return None
    buffer = plane.base_data.get_sub_region(plane.offset, plane.nbytes)
    return pyopencl.array.Array(plane.queue, plane.shape, plane.dtype, data=buffer)


def _copy(source: Any, target: Any) -> None:
    cl.enqueue_copy(
        target.queue, target.base_data, source.base_data,
        src_offset=source.offset, dst_offset=target.offset, byte_count=source.nbytes,
    )  # fmt: skip


POWER = """
__kernel void power(OUT(REAL, y), IN(COMPLEX, z), int cols)
{
    TO(REAL, y); AT(COMPLEX, z);
    const ulong col = get_global_id(0), row = get_global_id(1);
    const COMPLEX value = z[row * cols + col];
    y[row * get_global_size(0) + col] = value.x * value.x + value.y * value.y;
}
"""


def power_spectrum(p: PowerSpectrumParams, context: KernelContext, library: str) -> Kernel:
    plan_for = planning(library, context, (p.rows, p.cols), p.dtype, (0, 1))
    program = Program(PAD + POWER, p.dtype, context, "power spectra")
    rows, cols = np.array([p.rows, p.cols], "i")

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        plan = plan_for(y.queue)
        for image in range(len(x)):
            program("pad", (p.cols, p.rows), None, plan.before, x[image], rows, cols)
            plan.transform(plan.after, plan.before)
            program("power", y.shape[:0:-1], None, y[image], plan.after, cols)

    return kernel


CONVOLUTION = """
__kernel void multiply(OUT(COMPLEX, z), IN(COMPLEX, a), IN(COMPLEX, b))
{
    TO(COMPLEX, z); AT(COMPLEX, a); AT(COMPLEX, b);
    const ulong i = get_global_id(0);
    z[i].x = a[i].x * b[i].x - a[i].y * b[i].y;
    z[i].y = a[i].x * b[i].y + a[i].y * b[i].x;
}
__kernel void crop(OUT(REAL, y), IN(COMPLEX, z), int top, int left, int cols)
{
    TO(REAL, y); AT(COMPLEX, z);
    const ulong col = get_global_id(0), row = get_global_id(1);
    y[row * get_global_size(0) + col] = z[(row + top) * cols + col + left].x;
}
"""


def convolve(p: ConvolveParams, context: KernelContext, library: str) -> Kernel:
    shape = p.fast
    plan_for = planning(library, context, shape, p.dtype, (0, 1))
    program = Program(PAD + CONVOLUTION, p.dtype, context, "convolutions")
    image_size = np.array([p.rows, p.cols], "i")
    filter_size = np.array([p.filter_rows, p.filter_cols], "i")
    place = np.array([p.window[0].start, p.window[1].start, shape[1]], "i")

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y, filters = inputs["x"], outputs["y"], inputs["filters"]
        plan = plan_for(y.queue)

        def transformed(target: Any, matrix: Any, size: Any) -> Any:
            program("pad", shape[::-1], None, plan.before, matrix, *size)
            plan.transform(target, plan.before)
            return target

        full, *spectra = (pyopencl.array.empty_like(plan.after) for _ in range(1 + p.filters))
        for k, spectrum in enumerate(spectra):
            transformed(spectrum, filters[k], filter_size)
        for image in range(len(x)):
            transformed(plan.after, x[image], image_size)
            for k, spectrum in enumerate(spectra):
                program("multiply", (full.size,), None, plan.before, plan.after, spectrum)
                plan.transform(full, plan.before, True)
                program("crop", y.shape[:1:-1], None, y[image, k], full, *place)

    return kernel


WELCH = """
/* One segment each. What rounding leaves of the mean is subtracted, too. */
__kernel void segment(OUT(COMPLEX, z), IN(REAL, x), IN(REAL, window), int n, int step, int detrend)
{
    TO(COMPLEX, z); AT(REAL, x); AT(REAL, window);
    x += get_global_id(0) * step;
    z += get_global_id(0) * n;
    REAL mean = 0;
    for (int pass = 0; pass < 2 * detrend; pass++) {
        REAL sum = 0;
        for (int k = 0; k < n; k++)
            sum += x[k] - mean;
        mean += sum / n;
    }
    for (int k = 0; k < n; k++)
        z[k] = (COMPLEX)((x[k] - mean) * window[k], 0);
}
/* One frequency each. */
__kernel void density(OUT(REAL, y), IN(COMPLEX, z), int n, int segments, REAL size)
{
    TO(REAL, y); AT(COMPLEX, z);
    const ulong k = get_global_id(0);
    REAL sum = 0;
    for (int i = 0; i < segments; i++) {
        const COMPLEX value = z[(ulong)i * n + k];
        sum += value.x * value.x + value.y * value.y;
    }
    y[k] = sum / segments / size * (k > 0 && 2 * k < n ? 2 : 1);
}
"""


def welch(p: WelchParams, context: KernelContext, library: str) -> Kernel:
    plan_for = planning(library, context, (p.segments, p.nperseg), p.dtype, (1,))
    program = Program(WELCH, p.dtype, context, "spectral densities")
    cut = np.array([p.nperseg, p.step, p.detrend == "constant"], "i")
    n, segments = np.array([p.nperseg, p.segments], "i")
    window, size = window_of(p, np)
    size = np.dtype(p.dtype).type(size)

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        plan = plan_for(y.queue)
        there = pyopencl.array.to_device(y.queue, window)
        for channel in range(len(x)):
            program("segment", (p.segments,), None, plan.before, x[channel], there, *cut)
            plan.transform(plan.after, plan.before)
            program("density", y.shape[1:], None, y[channel], plan.after, n, segments, size)

    return kernel
