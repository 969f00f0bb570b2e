"""z = M^-1 r with the factors of `incomplete_cholesky`, one level of rows after the other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import scipy.sparse

from hetsched_workloads.pcg.csr import add_product
from hetsched_workloads.pcg.incomplete_cholesky import Triangle, factorise, triangle

Steps = list[tuple[slice, np.ndarray]]
"""Places of a level -> the row pointers of their dependencies."""


class BlockFactors:
    """The preconditioner of some blocks, with an own copy of their values.

    Attributes
    ----------
    order : (rows,) int
        Row at each place: level by level, in their order within each.
    bounds : (levels + 1,) int
        Places of each level.
    inverse_pivots : (rows,) of the system's dtype
    lower, upper : scipy.sparse.csr_array
        y = r / d + lower y, then z = y + upper z, by places.
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
        self.order, self.bounds = blocks.order, blocks.bounds
        self.inverse_pivots = inverse.astype(values.dtype)
        self.lower, self.upper = _scaled(blocks, factors, inverse, values.dtype)


class BlockSolver:
    """Solves for the rows `first` up to `stop` of `factors`, which are whole blocks.

    Since blocks don't depend on each other, rows that move between devices need other solvers, but
    no other factors.

    Attributes
    ----------
    rows : (count,) int
        Row (0: `first`) of each of `places`.
    places : slice or (count,) int
    lower_steps, upper_steps : Steps
        In the order in which they are computed.
    """

    def __init__(self, factors: BlockFactors, first: int, stop: int) -> None:
        self.factors = factors
        count, levels = len(factors.order), []
        for start, end in pairwise(factors.bounds.tolist()):
            own = start + np.searchsorted(factors.order[start:end], (first, stop))
            levels.append(slice(int(own[0]), int(own[1])))
        self.places: slice | np.ndarray = slice(0, count)
        if stop - first < count:
            self.places = np.concatenate([np.arange(own.start, own.stop) for own in levels])
        self.rows = factors.order[self.places] - first
        self.lower_steps = _steps(factors.lower, levels)
        self.upper_steps = _steps(factors.upper, levels[::-1])
        self._inverse_pivots = factors.inverse_pivots[self.places]
        self._work = np.empty(count, factors.inverse_pivots.dtype)

    def solve(self, r: np.ndarray, z: np.ndarray) -> None:
        """Write M^-1 r to z; both are in the order of rows."""
        work, factors = self._work, self.factors
        work[self.places] = r[self.rows] * self._inverse_pivots
        for matrix, steps in (
            (factors.lower, self.lower_steps),
            (factors.upper, self.upper_steps),
        ):
            columns, values = matrix.indices, matrix.data
            for places, pointers in steps:
                add_product(pointers, columns, values, work, work[places])
        z[self.rows] = work[self.places]


def _scaled(
    blocks: Triangle, factors: np.ndarray, inverse: np.ndarray, dtype: np.dtype
) -> tuple[scipy.sparse.csr_array, scipy.sparse.csr_array]:
    """Return -D^-1 W and -D^-1 W^T."""
    count = len(blocks.order)
    w = scipy.sparse.csr_array((-factors, blocks.columns, blocks.pointers), (count, count))
    scaled = []
    for matrix in (w, w.T.tocsr()):
        matrix.sort_indices()
        matrix.data *= np.repeat(inverse, np.diff(matrix.indptr))
        matrix.indices, matrix.indptr = (
            indices.astype(np.int32) for indices in (matrix.indices, matrix.indptr)
        )
        scaled.append(matrix.astype(dtype))
    return scaled[0], scaled[1]


def _steps(matrix: scipy.sparse.csr_array, levels: list[slice]) -> Steps:
    """Return the levels that depend on others."""
    steps = [(level, matrix.indptr[level.start : level.stop + 1]) for level in levels]
    return [(level, pointers) for level, pointers in steps if pointers[-1] > pointers[0]]
