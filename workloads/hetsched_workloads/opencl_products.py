"""A B, and C + A B, on an OpenCL device, by tiles in local memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched_workloads.matrix_update import MatrixParams
from hetsched_workloads.opencl_program import Program

TILE = 16
"""Rows and columns of a tile: its work group of 256 is the largest that all GPUs offer."""
SOURCE = """
__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void product(OUT(REAL, new), IN(REAL, a), IN(REAL, b), IN(REAL, added),
             int rows, int cols, int inner)
{
    TO(REAL, new); AT(REAL, a); AT(REAL, b); AT(REAL, added);
    const int width = (cols + TILE - 1) / TILE * TILE;
    const ulong pair = get_global_id(0) / width;
    new += pair * rows * cols;
    a += pair * rows * inner;
    b += pair * inner * cols;
    __local REAL a_tile[TILE][TILE], b_tile[TILE][TILE];
    const int col = get_global_id(0) % width, row = get_global_id(1);
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
        new[(ulong)row * cols + col] = sum + (ADDS ? added[(ulong)row * cols + col] : 0);
}
"""


def make(p: Any, chunk: int, context: KernelContext) -> Kernel:
    adds = isinstance(p, MatrixParams)
    program = Program(SOURCE, p.dtype, context, "products", TILE=TILE, ADDS=int(adds))

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        (y,) = outputs.values()
        rows, pairs = (len(y), 1) if adds else (p.rows, len(y))
        sizes = pairs * -(-p.cols // TILE) * TILE, -(-rows // TILE) * TILE
        added = inputs["C"] if adds else inputs["A"]
        arrays = y, inputs["A"], inputs["B"], added
        numbers = np.array([rows, p.cols, p.inner], "i")
        program("product", sizes, (TILE, TILE), *arrays, *numbers)

    return kernel
