"""C + A B by NumPy's matmul (which releases the GIL) into the result, then C is added."""

from __future__ import annotations

import numpy as np

from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched_workloads.matrix_update.declaration import MatrixParams

BLOCK_ROWS = 512
"""Rows per call: enough for BLAS to run at full speed, few enough to add C in the cache.

Measured for 4096 columns, 512 inner: 64 rows 15 to 30 % slower, the whole matrix 4 % in float32.
"""
MAX_BLOCKED_INNER = 2048
"""With more, all rows in one call: to pack B again costs more than to add C from memory.

BLAS packs all of B in each call. Measured for 8192 columns, 8192 inner, float32, 1024 rows of a
core: one call takes 2 % less time than two, and 5 % less than three. Where between 512 and 8192
the limit lies is an estimate.
"""


def make(p: MatrixParams, chunk: int, context: KernelContext) -> Kernel:
    """Return a kernel for any number of rows."""

    rows = BLOCK_ROWS if p.inner <= MAX_BLOCKED_INNER else p.rows

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        old, a, b, new = inputs["C"], inputs["A"], inputs["B"], outputs["C"]
        for first in range(0, len(new), rows):
            block = new[first : first + rows]
            np.matmul(a[first : first + rows], b, out=block)
            np.add(block, old[first : first + rows], out=block)

    return kernel
