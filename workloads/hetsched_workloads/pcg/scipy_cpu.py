"""The conjugate gradient method on a core: SciPy's product of own rows, NumPy's vectors.

For matrices in a core's caches, and where numba isn't installed. `csr_matvec` is SciPy's own loop,
which adds to its result and releases the GIL. `csr_array @ x` calls it, too, but allocates its
result, for which an iteration takes 10 % longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from hetsched.workload import Arrays, KernelContext, RowCache, Rows, StageKernel
from hetsched_workloads.pcg.declaration import PcgParams
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
    """Keeps the incomplete Cholesky factors of groups of own rows."""

    piece_rows = 1 << 16  # Of 10^6 rows: 2^14 take 20 % longer, 2^12 70 %

    def __init__(self, p: PcgParams) -> None:
        super().__init__(p)
        self._group = max(1, GROUP_ROWS // self._granule) * self._granule
        self._factors: RowCache[Any] = RowCache()
        if p.preconditioner == "cholesky":
            from hetsched_workloads.pcg import cholesky  # needs numba

            cholesky.compile_for(p.dtype, p.index_dtype)

    def matrix(self, rows: Rows, inputs: Arrays) -> Any:
        return scipy.sparse.csr_array(self.own(rows, inputs), shape=(rows.count, rows.load))

    def _multiply(self, rows: Rows, inputs: Arrays, x: np.ndarray, y: np.ndarray) -> None:
        if csr_matvec is None:
            super()._multiply(rows, inputs, x, y)
            return
        data, columns, pointers = self.own(rows, inputs)
        y[...] = 0
        csr_matvec(rows.count, rows.load, pointers, columns, data, x, y)

    def precondition(self, rows: Rows, inputs: Arrays, r: np.ndarray, z: np.ndarray) -> None:
        for group in range(rows.first // self._group * self._group, rows.stop, self._group):
            first, stop = max(group, rows.first), min(group + self._group, rows.stop)
            own = slice(first - rows.first, stop - rows.first)
            factors = self._factors.get(first, stop, partial(self._factorised, rows, own, inputs))
            factors.solve(0, stop - first, r[own], z[own])

    def _factorised(self, rows: Rows, own: slice, inputs: Arrays) -> Any:
        from hetsched_workloads.pcg.cholesky import RowFactors  # needs numba

        data, columns, pointers = self.own(rows, inputs)
        part = pointers[own.start : own.stop + 1]
        return RowFactors(part, columns, data, rows.first + own.start, self._granule)
