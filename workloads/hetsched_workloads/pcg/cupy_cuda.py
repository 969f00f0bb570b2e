"""The conjugate gradient method on a GPU: cuSPARSE products by CuPy, on the current stream.

Incomplete Cholesky factors are computed on the host, once for the rows of the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cupy
import scipy.sparse
from cupyx.scipy.sparse import csr_matrix
from cupyx.scipy.sparse.linalg import spsolve_triangular

from hetsched.errors import JobFailed
from hetsched.workload import Arrays, KernelContext, RowCache, Rows, StageKernel
from hetsched_workloads.pcg.declaration import PcgParams
from hetsched_workloads.pcg.kernels import PcgKernels

MAX_INDEX = 2**31 - 1


def make(p: PcgParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage; compiles the loops of incomplete factors."""
    if p.preconditioner == "cholesky":
        from hetsched_workloads.pcg import cholesky  # needs numba

        cholesky.compile_for(p.dtype, p.index_dtype)
    return CupyKernels(p).stages()


class CupyKernels(PcgKernels):
    """Keeps the incomplete Cholesky factors of own rows: I + V, its transpose, and 1 / D.

    It keeps no view of the inputs, since own rows may move in the GPU's memory.
    """

    xp = cupy
    piece_rows = 1 << 20  # for a GPU many, and temporary vectors stay small

    def __init__(self, p: PcgParams) -> None:
        super().__init__(p)
        self._factors: RowCache[tuple[Any, Any, Any]] = RowCache()
        self._columns: RowCache[Any] = RowCache()

    def matrix(self, rows: Rows, inputs: Arrays) -> Any:
        """Return own rows of A; CuPy's indices are int32.

        Raises
        ------
        JobFailed
            There are too many rows or nonzeros for such indices.
        """
        data, columns, pointers = self.own(rows, inputs)
        largest = max(len(data), rows.load)
        if largest > MAX_INDEX:
            raise JobFailed(
                f"a GPU would have {largest} rows or nonzeros of A, and cuSPARSE's indices in CuPy"
                f" end at {MAX_INDEX}: use more devices, or --devices cpu"
            )
        if columns.dtype != "int32":
            wide = columns
            columns = self._columns.get(rows.first, rows.stop, lambda: wide.astype("int32"))
            pointers = pointers.astype("int32")
        matrix = csr_matrix((data, columns, pointers), shape=(rows.count, rows.load))
        matrix.has_canonical_format = True  # checked: else each product would check again
        return matrix

    def precondition(self, rows: Rows, inputs: Arrays, r: Any, z: Any) -> None:
        lower, upper, inverse = self._factors.get(
            rows.first, rows.stop, lambda: self._factorised(rows, inputs)
        )
        y = spsolve_triangular(lower, r, lower=True)
        z[...] = spsolve_triangular(upper, y * inverse, lower=False)

    def _factorised(self, rows: Rows, inputs: Arrays) -> tuple[Any, Any, Any]:
        from hetsched_workloads.pcg.cholesky import RowFactors  # needs numba

        values, columns, pointers = map(cupy.asnumpy, self.own(rows, inputs))
        factors = RowFactors(pointers, columns, values, rows.first, self._granule)
        v = (factors.lower, factors.columns, factors.pointers)
        lower = scipy.sparse.csr_matrix(v, (rows.count, rows.count))
        lower += scipy.sparse.eye(rows.count, dtype=lower.dtype, format="csr")
        there = (
            csr_matrix(tuple(map(cupy.asarray, (m.data, m.indices, m.indptr))), shape=m.shape)
            for m in (lower, lower.T.tocsr())
        )
        return (*there, cupy.asarray(factors.inverse))
