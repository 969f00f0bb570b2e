"""FFT on an OpenCL device, unit by unit.

Units are sub-buffers, where the device lets one begin there, and else pass through a buffer. So do
real ones, which are transformed as complex ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array

from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched_workloads.fft import DTYPES, FftParams
from hetsched_workloads.opencl_fft import PAD, Plans
from hetsched_workloads.opencl_program import Program

SOURCE = """
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


def make(p: FftParams, context: KernelContext, library: str) -> Kernel:
    real = DTYPES[p.dtype].real
    plans = Plans(
        library,
        context,
        p.output_shape if p.kind == "c2r" else p.shape,
        real,
        tuple(axis - 1 for axis in p.batch_axes),
    )
    program = Program(PAD + SOURCE, real, context, "conversions")
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
        plan = plans.on(y.queue)
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
        target.queue,
        target.base_data,
        source.base_data,
        src_offset=source.offset,
        dst_offset=target.offset,
        byte_count=source.nbytes,
    )
