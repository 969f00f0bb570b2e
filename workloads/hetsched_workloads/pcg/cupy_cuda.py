"""The conjugate gradient method on a GPU: cuSPARSE products by CuPy, on the current stream.

Incomplete Cholesky factors are computed on the host, once for the rows of the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import cupy
import scipy.sparse
from cupyx.scipy.sparse import csr_matrix
from cupyx.scipy.sparse.linalg import spsolve_triangular

from hetsched.errors import JobFailed
from hetsched.workload import KernelContext, RowCache, StageCall, StageKernel
from hetsched_workloads.pcg import PcgParams
from hetsched_workloads.pcg.kernels import PcgKernels

MAX_INDEX = 2**31 - 1


def make(p: PcgParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    return CupyKernels(p).stages()


class CupyKernels(PcgKernels):
    """Keeps no view of the inputs, since own rows may move in the GPU's memory."""

    xp = cupy
    to_host = staticmethod(cupy.asnumpy)
    piece_rows = 1 << 20  # for a GPU many, and temporary vectors stay small

    def __init__(self, p: PcgParams) -> None:
        super().__init__(p)
        self._columns: RowCache[Any] = RowCache()

    def write_product(self, call: StageCall, x: Any, y: Any) -> None:
        """Write own rows of A x to y; CuPy's indices are int32. Raises JobFailed."""
        rows, (data, columns, pointers) = call.rows, self.own(call)
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
        y[...] = matrix @ x

    def solver(self, factors: Any) -> Callable[[Any, Any], None]:
        """Keep I + V, its transpose, and 1 / D on the device."""
        count = len(factors.inverse)
        v = (factors.lower, factors.columns, factors.pointers)
        both = scipy.sparse.csr_matrix(v, (count, count))
        both += scipy.sparse.eye(count, dtype=both.dtype, format="csr")
        lower, upper = (
            csr_matrix(tuple(map(cupy.asarray, (m.data, m.indices, m.indptr))), shape=m.shape)
            for m in (both, both.T.tocsr())
        )
        inverse = cupy.asarray(factors.inverse)

        def solve(r: Any, z: Any) -> None:
            y = spsolve_triangular(lower, r, lower=True)
            z[...] = spsolve_triangular(upper, y * inverse, lower=False)

        return solve
