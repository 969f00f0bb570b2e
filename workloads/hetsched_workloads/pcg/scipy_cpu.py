"""The conjugate gradient method on a core: SciPy's product of own rows, NumPy's vectors.

For matrices in a core's caches, and where numba isn't installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hetsched.workload import Arrays, KernelContext, RowCache, Rows, StageKernel
from hetsched_workloads.pcg.csr import add_product
from hetsched_workloads.pcg.declaration import Pcg, PcgParams
from hetsched_workloads.pcg.inference import PARTS
from hetsched_workloads.pcg.kernels import PcgKernels

PIECE_ROWS = 1 << 16
"""Rows of vectors computed at a time. Of 10^6 rows: 2^14 take 20 % longer, 2^12 70 %."""
GROUP_ROWS = 1 << 17
"""Rows factorised together: those that a device gets or loses cost no more."""


def make(p: PcgParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage."""
    return PcgKernels(p, backend(p)).stages()


def backend(p: PcgParams) -> ScipyBackend:
    """Return what computes with own rows; compiles the loops of incomplete factors."""
    if p.preconditioner == "cholesky":
        from hetsched_workloads.pcg import cholesky  # needs numba

        cholesky.compile_for(p.dtype, p.index_dtype)
    return ScipyBackend(Pcg().granule(p))


class ScipyBackend:
    """Keeps the incomplete Cholesky factors of groups of blocks, also of those partly its own."""

    def __init__(self, block: int) -> None:
        self.xp = np
        self.piece_rows = PIECE_ROWS
        self._block = block
        self._group = max(1, GROUP_ROWS // block) * block
        self._factors: RowCache[Any] = RowCache()

    def multiply(self, rows: Rows, inputs: Arrays, x: np.ndarray, y: np.ndarray) -> None:
        """Write the rows of A x to y."""
        pointers = inputs["A.indptr"][rows.first : rows.stop + 1]
        y[...] = 0
        add_product(pointers, inputs["A.indices"], inputs["A.data"], x, y)

    def precondition(self, rows: Rows, inputs: Arrays, r: np.ndarray, z: np.ndarray) -> None:
        """Write the rows of M^-1 r to z."""
        data, columns, pointers = (inputs[part] for part in PARTS)
        for group in range(rows.first // self._group * self._group, rows.stop, self._group):
            first, stop = max(group, rows.first), min(group + self._group, rows.stop)
            start, end = group, min(group + self._group, rows.load)
            if first % self._block or (stop % self._block and stop < rows.load):
                start, end = first, stop  # a device without room for all its rows cuts blocks
            own = slice(first - rows.first, stop - rows.first)
            self._factorised(start, end, pointers, columns, data).solve(
                first - start, stop - start, r[own], z[own]
            )

    def _factorised(self, first: int, stop: int, pointers: Any, columns: Any, data: Any) -> Any:
        from hetsched_workloads.pcg.cholesky import RowFactors  # needs numba

        rows = pointers[first : stop + 1]
        return self._factors.get(
            first, stop, lambda: RowFactors(rows, columns, data, first, self._block)
        )
