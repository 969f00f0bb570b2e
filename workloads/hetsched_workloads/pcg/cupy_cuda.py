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
from hetsched_workloads.pcg.declaration import Pcg, PcgParams
from hetsched_workloads.pcg.inference import PARTS
from hetsched_workloads.pcg.kernels import PcgKernels

MAX_INDEX = 2**31 - 1
PIECE_ROWS = 1 << 20
"""Rows of vectors computed at a time: for a GPU many, and temporary vectors stay small."""


def make(p: PcgParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage; compiles the loops of incomplete factors."""
    if p.preconditioner == "cholesky":
        from hetsched_workloads.pcg import cholesky  # needs numba

        cholesky.compile_for(p.dtype, p.index_dtype)
    return PcgKernels(p, CupyBackend(Pcg().granule(p))).stages()


class CupyBackend:
    """Keeps the matrix of own rows, and their incomplete Cholesky factors."""

    def __init__(self, block: int) -> None:
        self.xp = cupy
        self.piece_rows = PIECE_ROWS
        self._block = block
        self._matrices: RowCache[Any] = RowCache()
        self._solvers: RowCache[CupySolver] = RowCache()

    def multiply(self, rows: Rows, inputs: Arrays, x: Any, y: Any) -> None:
        """Write the rows of A x to y."""
        data, columns, pointers = (inputs[part] for part in PARTS)
        own = pointers[rows.first : rows.stop + 1]
        matrix = self._matrices.get(
            rows.first, rows.stop, lambda: _matrix(data, columns, own, rows.load)
        )
        y[...] = matrix @ x

    def precondition(self, rows: Rows, inputs: Arrays, r: Any, z: Any) -> None:
        """Write the rows of M^-1 r to z."""
        solver = self._solvers.get(
            rows.first, rows.stop, lambda: CupySolver(rows, inputs, self._block)
        )
        solver.solve(r, z)


class CupySolver:
    """The incomplete factors of some rows in device memory: I + V, its transpose, and 1 / D."""

    def __init__(self, rows: Rows, inputs: Arrays, block: int) -> None:
        from hetsched_workloads.pcg.cholesky import RowFactors  # needs numba

        data, columns, pointers = (inputs[part] for part in PARTS)
        own = cupy.asnumpy(pointers[rows.first : rows.stop + 1])
        part = slice(int(own[0]), int(own[-1]))
        factors = RowFactors(
            own - own[0], cupy.asnumpy(columns[part]), cupy.asnumpy(data[part]), rows.first, block
        )
        v = (factors.lower, factors.columns, factors.pointers)
        lower = scipy.sparse.csr_matrix(v, (rows.count, rows.count))
        lower += scipy.sparse.eye(rows.count, dtype=lower.dtype, format="csr")
        self._lower, self._upper = (
            csr_matrix(tuple(map(cupy.asarray, (m.data, m.indices, m.indptr))), shape=m.shape)
            for m in (lower, lower.T.tocsr())
        )
        self._inverse = cupy.asarray(factors.inverse)

    def solve(self, r: Any, z: Any) -> None:
        """Write M^-1 r to z."""
        y = spsolve_triangular(self._lower, r, lower=True)
        z[...] = spsolve_triangular(self._upper, y * self._inverse, lower=False)


def _matrix(data: Any, columns: Any, pointers: Any, width: int) -> Any:
    """Return the rows of `pointers`, a part of all row pointers; CuPy's indices are int32.

    Raises
    ------
    JobFailed
        There are too many rows or nonzeros for such indices.
    """
    part = slice(int(pointers[0]), int(pointers[-1]))
    largest = max(part.stop - part.start, width)
    if largest > MAX_INDEX:
        raise JobFailed(
            f"a GPU would have {largest} rows or nonzeros of A, and cuSPARSE's indices in CuPy end"
            f" at {MAX_INDEX}: use more devices, or --devices cpu"
        )
    own = (pointers - pointers[0]).astype("int32", copy=False)
    rows = (data[part], columns[part].astype("int32", copy=False), own)
    return csr_matrix(rows, shape=(len(own) - 1, width))
