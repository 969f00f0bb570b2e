"""Workloads by Fourier transforms on OpenCL devices, unit by unit: a function for each name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl.array

from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched_workloads.convolve import ConvolveParams
from hetsched_workloads.opencl_fft import PAD, Plans
from hetsched_workloads.opencl_program import Program
from hetsched_workloads.power_spectrum import PowerSpectrumParams
from hetsched_workloads.welch import WelchParams, window_of

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
    plans = Plans(library, context, (p.rows, p.cols), p.dtype, (0, 1))
    program = Program(PAD + POWER, p.dtype, context, "power spectra")
    rows, cols = np.array([p.rows, p.cols], "i")

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        plan = plans.on(y.queue)
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
    plans = Plans(library, context, shape, p.dtype, (0, 1))
    program = Program(PAD + CONVOLUTION, p.dtype, context, "convolutions")
    image_size = np.array([p.rows, p.cols], "i")
    filter_size = np.array([p.filter_rows, p.filter_cols], "i")
    place = np.array([p.window[0].start, p.window[1].start, shape[1]], "i")

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y, filters = inputs["x"], outputs["y"], inputs["filters"]
        plan = plans.on(y.queue)

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
    plans = Plans(library, context, (p.segments, p.nperseg), p.dtype, (1,))
    program = Program(WELCH, p.dtype, context, "spectral densities")
    cut = np.array([p.nperseg, p.step, p.detrend == "constant"], "i")
    n, segments = np.array([p.nperseg, p.segments], "i")
    window, size = window_of(p, np)
    size = np.dtype(p.dtype).type(size)

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        plan = plans.on(y.queue)
        there = pyopencl.array.to_device(y.queue, window)
        for channel in range(len(x)):
            program("segment", (p.segments,), None, plan.before, x[channel], there, *cut)
            plan.transform(plan.after, plan.before)
            program("density", y.shape[1:], None, y[channel], plan.after, n, segments, size)

    return kernel
