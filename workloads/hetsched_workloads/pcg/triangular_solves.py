"""z = M^-1 r with the factors of `incomplete_cholesky`, one level of rows after the other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse

from hetsched_workloads.pcg.csr import add_product
from hetsched_workloads.pcg.incomplete_cholesky import Triangle, factorise, triangle

Steps = list[tuple[slice, np.ndarray]]
"""Places of a level -> the row pointers of their dependencies."""


class BlockSolver:
    """The preconditioner of some blocks, with an own copy of their values.

    Attributes
    ----------
    order : (rows,) int
        Row at each place; a solve is done by places.
    inverse_pivots : (rows,) of the system's dtype
    lower, upper : scipy.sparse.csr_array
        y = r / d + lower y, then z = y + upper z.
    lower_steps, upper_steps : Steps
        In the order in which they are computed.
    """

    def __init__(
        self,
        pointers: np.ndarray,
        columns: np.ndarray,
        values: np.ndarray,
        first: int,
        block: int,
    ) -> None:
        blocks = triangle(pointers, columns, values, first, block)
        factors, inverse = factorise(blocks)
        self.order = blocks.order
        self.inverse_pivots = inverse.astype(values.dtype)
        self.lower, self.upper = _scaled(blocks, factors, inverse, values.dtype)
        levels = [slice(int(a), int(b)) for a, b in pairwise(blocks.bounds)]
        self.lower_steps = _steps(self.lower, levels)
        self.upper_steps = _steps(self.upper, levels[::-1])
        self._work = np.empty(len(self.order), values.dtype)

    def solve(self, r: np.ndarray, z: np.ndarray) -> None:
        """Write M^-1 r to z; both are in the order of rows."""
        work = self._work
        np.take(r, self.order, out=work, mode="clip")  # "raise" would need a buffer
        work *= self.inverse_pivots
        for matrix, steps in ((self.lower, self.lower_steps), (self.upper, self.upper_steps)):
            columns, values = matrix.indices, matrix.data
            for places, pointers in steps:
                add_product(pointers, columns, values, work, work[places])
        z[self.order] = work


def _scaled(
    blocks: Triangle, factors: np.ndarray, inverse: np.ndarray, dtype: np.dtype
) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    """Return -D^-1 W and -D^-1 W^T."""
    count = len(blocks.order)
    w = scipy.sparse.csr_array((-factors, blocks.columns, blocks.pointers), (count, count))
    scaled = []
    for matrix in (w, w.T.tocsr()):
        matrix.sort_indices()
        data = matrix.data * np.repeat(inverse, np.diff(matrix.indptr))
        rows = (
            data.astype(dtype),
            matrix.indices.astype(np.int32),
            matrix.indptr.astype(np.int32),
        )
        scaled.append(scipy.sparse.csr_array(rows, shape=(count, count)))
    return scaled[0], scaled[1]


def _steps(matrix: scipy.sparse.csr_array, levels: list[slice]) -> Steps:
    """Return the levels that depend on others."""
    steps = [(level, matrix.indptr[level.start : level.stop + 1]) for level in levels]
    return [(level, pointers) for level, pointers in steps if pointers[-1] > pointers[0]]
