"""The conjugate gradient method on a core: SciPy's product of own rows, NumPy's vectors.

For matrices in a core's caches, and where numba isn't installed. `csr_matvec` is SciPy's own loop,
which adds to its result and releases the GIL. `csr_array @ x` calls it, too, but allocates its
result, for which an iteration takes 10 % longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from hetsched.workload import Arrays, KernelContext, RowCache, Rows, StageKernel
from hetsched_workloads.pcg.declaration import PcgParams
from hetsched_workloads.pcg.inference import PARTS
from hetsched_workloads.pcg.kernels import PcgKernels

try:
    from scipy.sparse._sparsetools import csr_matvec
except ImportError:  # not public: a version of SciPy may lack it
    csr_matvec = None

GROUP_ROWS = 1 << 17
"""Rows factorised together: those that a device gets or loses cost no more."""


def make(p: PcgParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    return ScipyKernels(p).stages()


class ScipyKernels(PcgKernels):
    """Keeps the incomplete Cholesky factors of groups of blocks, also of those partly its own."""

    piece_rows = 1 << 16  # Of 10^6 rows: 2^14 take 20 % longer, 2^12 70 %

    def __init__(self, p: PcgParams) -> None:
        super().__init__(p)
        self._group = max(1, GROUP_ROWS // self._granule) * self._granule
        self._factors: RowCache[Any] = RowCache()
        if p.preconditioner == "cholesky":
            from hetsched_workloads.pcg import cholesky  # needs numba

            cholesky.compile_for(p.dtype, p.index_dtype)

    def matrix(self, rows: Rows, inputs: Arrays) -> Any:
        data, columns, pointers = (inputs[part] for part in PARTS)
        own = pointers[rows.first : rows.stop + 1]
        part = slice(int(own[0]), int(own[-1]))
        shape = (rows.count, rows.load)
        return scipy.sparse.csr_array((data[part], columns[part], own - own[0]), shape=shape)

    def _multiply(self, rows: Rows, inputs: Arrays, x: np.ndarray, y: np.ndarray) -> None:
        if csr_matvec is None:
            super()._multiply(rows, inputs, x, y)
            return
        data, columns, pointers = (inputs[part] for part in PARTS)
        y[...] = 0
        own = pointers[rows.first : rows.stop + 1]  # of the whole matrix: own rows need no copy
        csr_matvec(rows.count, rows.load, own, columns, data, x, y)

    def precondition(self, rows: Rows, inputs: Arrays, r: np.ndarray, z: np.ndarray) -> None:
        for group in range(rows.first // self._group * self._group, rows.stop, self._group):
            first, stop = max(group, rows.first), min(group + self._group, rows.stop)
            start, end = group, min(group + self._group, rows.load)
            if first % self._granule or (stop % self._granule and stop < rows.load):
                start, end = first, stop  # a device without room for all its rows cuts blocks
            own = slice(first - rows.first, stop - rows.first)
            self._factorised(start, end, inputs).solve(first - start, stop - start, r[own], z[own])

    def _factorised(self, first: int, stop: int, inputs: Arrays) -> Any:
        from hetsched_workloads.pcg.cholesky import RowFactors  # needs numba

        data, columns, pointers = (inputs[part] for part in PARTS)
        rows = pointers[first : stop + 1]
        return self._factors.get(
            first, stop, lambda: RowFactors(rows, columns, data, first, self._granule)
        )
