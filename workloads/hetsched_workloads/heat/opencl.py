"""The kernels of a diffusion on an OpenCL device, with the bits of those for arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyopencl.array

from hetsched.errors import DataError
from hetsched.workload import KernelContext, StageCall, StageKernel
from hetsched_workloads.heat import HeatParams
from hetsched_workloads.heat.kernels import result
from hetsched_workloads.opencl_program import Program
from hetsched_workloads.vectors import first_true

MAXIMA = 4096
"""Work items that look for the largest change, each in a part of the points."""
BORDERS = ("periodic", "dirichlet", "neumann")
SOURCE = """
/* Along an axis of n points, `stride` apart; u[0] is point i of it. */
REAL neighbours(__global const REAL *u, int i, int n, long stride, int border, REAL ghost) {
    const long back = (n - 1) * stride;
    const REAL first = border == 0 ? u[back - i * stride] : border == 1 ? ghost : u[0];
    const REAL last = border == 0 ? u[-i * stride] : border == 1 ? ghost : u[0];
    return (i > 0 ? u[-stride] : first) + (i < n - 1 ? u[stride] : last);
}
REAL after_one(__global const REAL *u, long first, long second, int rows, int cols,
               REAL weight, REAL ghost) {
    const long at = first * cols + second;
    REAL sum = u[at - (long)rows * cols] + u[at + (long)rows * cols];
#if AXES == 3
    sum += neighbours(u + at, first % rows, rows, cols, MIDDLE, ghost);
#endif
    sum += neighbours(u + at, second, cols, 1, LAST, ghost);
    return u[at] + weight * (sum - u[at] * (2 * AXES));
}
__kernel void load(OUT(REAL, new), IN(REAL, old), OUT(char, bad), long points) {
    TO(REAL, new); AT(REAL, old); TO(char, bad);
    const long i = get_global_id(0);
    new[i] = old[i];
    if (!isfinite(old[i])) bad[i / points] = 1;
}
/* `rows` by `cols` points in a plane of u, which begins with a plane of the halo. Not called step:
   that is a function of OpenCL, so PoCL would rename it. */
__kernel void advance(OUT(REAL, new), IN(REAL, u), int rows, int cols, REAL weight, REAL ghost) {
    TO(REAL, new); AT(REAL, u);
    const long first = get_global_id(1), second = get_global_id(0);
    const __global REAL *own = u + (long)rows * cols;
    new[first * cols + second] = after_one(own, first, second, rows, cols, weight, ghost);
}
__kernel void largest(OUT(REAL, found), IN(REAL, new), IN(REAL, old), long count) {
    TO(REAL, found); AT(REAL, new); AT(REAL, old);
    REAL most = 0;
    for (long i = get_global_id(0); i < count; i += get_global_size(0)) {
        const REAL change = fabs(new[i] - old[i]);
        if (!isnan(most) && !(change <= most)) most = change;
    }
    found[get_global_id(0)] = most;
}
"""


def make(p: HeatParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    rows_and_cols = (1, *p.shape[1:])[-2:]
    points, real = math.prod(p.shape[1:]), np.dtype(p.dtype).type
    borders = [BORDERS.index(border) for border in p.borders]
    program = Program(
        SOURCE, p.dtype, context, "a diffusion",
        AXES=len(p.shape), MIDDLE=borders[-2], LAST=borders[-1],
    )  # fmt: skip

    def start(call: StageCall) -> None:
        new = call.outputs["u"]
        bad = pyopencl.array.zeros(new.queue, call.rows.count, np.int8)
        program("load", (new.size,), None, new, call.inputs["initial"], bad, np.int64(points))
        if (row := first_true(np, bad.get())) is not None:
            row += call.rows.first
            raise DataError(f"initial: row {row} has a NaN or an infinite value")

    def step(call: StageCall) -> None:
        u, new = call.inputs["u"], call.outputs["u"]
        size = rows_and_cols[1], call.rows.count * rows_and_cols[0]
        numbers: list[Any] = [*map(np.int32, rows_and_cols), real(p.ratio), real(p.border_value)]
        program("advance", size, None, new, u, *numbers)
        if p.tolerance > 0:
            found = pyopencl.array.empty(new.queue, MAXIMA, p.dtype)
            program("largest", (MAXIMA,), None, found, new, u[1:-1], np.int64(new.size))
            call.partials["change"][...] = found.get().max()
        call.partials["steps"][...] = call.values.before["steps"] + 1

    return {"load": start, "step": step, "result": result}
