"""C + A B on an OpenCL device, by tiles in local memory."""

from __future__ import annotations

import numpy as np
import pyopencl as cl

from hetsched.errors import UsageError
from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched_workloads.matrix_update.declaration import MatrixParams

TILE = 16
"""Rows and columns of a tile: its work group of 256 is the largest that all GPUs offer."""
SOURCE = """
#if IS_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void update(
    __global const char *c_bytes, ulong c_start, __global const char *a_bytes, ulong a_start,
    __global const char *b_bytes, ulong b_start, __global char *new_bytes, ulong new_start,
    int rows, int cols, int inner)
{
    __global const REAL *c = (__global const REAL *)(c_bytes + c_start);
    __global const REAL *a = (__global const REAL *)(a_bytes + a_start);
    __global const REAL *b = (__global const REAL *)(b_bytes + b_start);
    __global REAL *new_c = (__global REAL *)(new_bytes + new_start);
    __local REAL a_tile[TILE][TILE], b_tile[TILE][TILE];
    const int col = get_global_id(0), row = get_global_id(1);
    const int x = get_local_id(0), y = get_local_id(1);
    REAL sum = 0;
    for (int first = 0; first < inner; first += TILE) {
        const int a_col = first + x, b_row = first + y;
        a_tile[y][x] = row < rows && a_col < inner ? a[(ulong)row * inner + a_col] : 0;
        b_tile[y][x] = b_row < inner && col < cols ? b[(ulong)b_row * cols + col] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; k++)
            sum += a_tile[y][k] * b_tile[k][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row < rows && col < cols)
        new_c[(ulong)row * cols + col] = c[(ulong)row * cols + col] + sum;
}
"""


def make(p: MatrixParams, chunk: int, context: KernelContext) -> Kernel:
    """Return a kernel for any number of rows, in the queue of its arrays.

    Raises
    ------
    UsageError
        The device has no double precision.
    """
    is_double = p.dtype == "float64"
    options = [
        f"-DTILE={TILE}",
        f"-DREAL={'double' if is_double else 'float'}",
        f"-DIS_DOUBLE={int(is_double)}",
    ]
    programs: dict[cl.Context, cl.Kernel] = {}

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        queue = outputs["C"].queue
        if queue.context not in programs:
            if is_double and "cl_khr_fp64" not in queue.device.extensions:
                raise UsageError(f"{queue.device.name} computes no float64")
            context.say("compiling a matrix update for OpenCL ...")
            programs[queue.context] = cl.Program(queue.context, SOURCE).build(options).update
        rows = len(inputs["C"])
        sizes = (p.cols + TILE - 1) // TILE * TILE, (rows + TILE - 1) // TILE * TILE
        buffers = [
            argument
            for array in (inputs["C"], inputs["A"], inputs["B"], outputs["C"])
            for argument in (array.base_data, np.uint64(array.offset))
        ]
        numbers = map(np.int32, (rows, p.cols, p.inner))
        programs[queue.context](queue, sizes, (TILE, TILE), *buffers, *numbers)

    return kernel
