"""The conjugate gradient method on a core: SciPy's product of own rows, NumPy's vectors.

For matrices in a core's caches, and where numba isn't installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from hetsched.workload import Arrays, KernelContext, Rows, StageKernel
from hetsched_workloads.pcg.csr import add_product
from hetsched_workloads.pcg.declaration import Pcg, PcgParams
from hetsched_workloads.pcg.kernels import PcgKernels
from hetsched_workloads.pcg.triangular_solves import BlockFactors, BlockSolver
from hetsched_workloads.row_cache import RowCache

PIECE_ROWS = 1 << 16
"""Rows of vectors computed at a time. Of 10^6 rows: 2^14 take 20 % longer, 2^12 70 %."""
GROUP_ROWS = 1 << 17
"""Rows factorised and solved together: each level of rows costs a call for each group."""


def make(p: PcgParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage."""
    return PcgKernels(p, backend(p)).stages()


def backend(p: PcgParams) -> ScipyBackend:
    """Return what computes with own rows."""
    return ScipyBackend(Pcg().granule(p))


class Solver(Protocol):
    """Solves with the preconditioner of some rows."""

    def solve(self, r: np.ndarray, z: np.ndarray) -> None:
        """Write M^-1 r to z."""


class ScipyBackend:
    """Keeps the incomplete Cholesky factors of groups of blocks, also of those partly its own."""

    def __init__(self, block: int) -> None:
        self.xp = np
        self.piece_rows = PIECE_ROWS
        self._block = block
        self._group = max(1, GROUP_ROWS // block) * block
        self._factors: RowCache[BlockFactors] = RowCache()
        self._solvers: RowCache[BlockSolver] = RowCache()

    def multiply(self, rows: Rows, inputs: Arrays, x: np.ndarray, y: np.ndarray) -> None:
        """Write the rows of A x to y."""
        pointers = inputs["A.indptr"][rows.first : rows.stop + 1]
        y[...] = 0
        add_product(pointers, inputs["A.indices"], inputs["A.data"], x, y)

    def precondition(self, rows: Rows, inputs: Arrays, r: np.ndarray, z: np.ndarray) -> None:
        """Write the rows of M^-1 r to z."""
        for group in range(rows.first // self._group * self._group, rows.stop, self._group):
            first, stop = max(group, rows.first), min(group + self._group, rows.stop)
            own = slice(first - rows.first, stop - rows.first)
            self._solver(group, first, stop, inputs).solve(r[own], z[own])

    def _solver(self, group: int, first: int, stop: int, inputs: Arrays) -> Solver:
        """Return the solver of the rows `first` up to `stop`, a part of a group of blocks."""
        bounds = self._factorised(group, first, stop, len(inputs["A.indptr"]) - 1)
        factors = self._factors.get(*bounds, lambda: self._factorise(*bounds, inputs))
        return self._solvers.get(
            first, stop, lambda: BlockSolver(factors, first - bounds[0], stop - bounds[0])
        )

    def _factorised(self, group: int, first: int, stop: int, load: int) -> tuple[int, int]:
        """Return the rows whose blocks are factorised together."""
        if first % self._block or (stop % self._block and stop < load):
            return first, stop  # a device without room for all its rows cuts blocks
        return group, min(group + self._group, load)

    def _factorise(self, first: int, stop: int, inputs: Arrays) -> BlockFactors:
        pointers = inputs["A.indptr"][first : stop + 1]
        return BlockFactors(pointers, inputs["A.indices"], inputs["A.data"], first, self._block)
