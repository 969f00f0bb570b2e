"""Incomplete Cholesky factors, without fill, of diagonal blocks, in loops that numba compiles.

M = (D + W) D^-1 (D + W^T), with W strictly lower triangular and as sparse as A in each block:

    w_ik = a_ik - sum over j < k of w_ij w_kj / d_j,    d_i = a_ii - sum over k of w_ik^2 / d_k

which is IC(0) (Meijerink and van der Vorst, Math. Comp. 31, 1977) without square roots; SciPy has
none (its `spilu` isn't symmetric). Kept is V = W D^-1: M = (I + V) D (I + V^T), and one triangle
is enough, since the solve with V^T goes through V by columns.

If a pivot isn't positive, the block is factorised again with a larger diagonal (Manteuffel, Math.
Comp. 34, 1980). Blocks don't depend on each other, so values don't depend on the split.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hetsched.errors import DataError
from hetsched_workloads.compiling import compiled, compiling
from hetsched_workloads.pcg.kernels import entry_rows

MIN_PIVOT = 1e-6
"""Least pivot over the diagonal element. Arbitrary."""
FIRST_SHIFT, SHIFT_GROWTH = 1e-3, 10.0
MAX_SHIFT = 1e9
"""Larger ones don't help. A positive definite matrix needs less than the rows of a block: then its
diagonal dominates."""


class RowFactors:
    """The preconditioner of some blocks of `block` rows: `pointers`, `columns` and `lower` are
    the CSR of V, `inverse` is 1 / D.

    `first`: the first row; a block that begins before it or ends after the last row is cut.
    Raises DataError if a block has no factors.
    """

    def __init__(self, pointers: Any, columns: Any, values: Any, first: int, block: int) -> None:
        part, count = slice(int(pointers[0]), int(pointers[-1])), len(pointers) - 1
        own, row = columns[part] - first, entry_rows(np, pointers)
        block_start = np.maximum((row + first) // block * block - first, 0)
        is_lower, is_diagonal = (block_start <= own) & (own < row), own == row
        self.columns = own[is_lower].astype(np.int32)
        self.pointers = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(row[is_lower], minlength=count), out=self.pointers[1:])
        lower = values[part][is_lower].astype(np.float64)
        diagonal, inverse = np.zeros(count), np.empty(count)
        diagonal[row[is_diagonal]] = values[part][is_diagonal]
        bad = _factorise(self.pointers, self.columns, lower, diagonal, first, block, inverse)
        if bad >= 0:
            raise DataError(
                f"A is not positive definite: its diagonal block {(first + bad) // block} has no"
                " incomplete Cholesky factors"
            )
        self.lower = lower.astype(values.dtype)
        self.inverse = inverse.astype(values.dtype)

    def solve(self, r: np.ndarray, z: np.ndarray) -> None:
        _solve(self.pointers, self.columns, self.lower, self.inverse, r, z)


@compiling
@functools.cache
def compile_for(dtype: str, index_dtype: str) -> None:
    pointers, columns = np.array([0, 1], index_dtype), np.zeros(1, index_dtype)
    vector = np.ones(1, dtype)
    RowFactors(pointers, columns, vector, 0, 1).solve(vector, vector.copy())


@compiled()
def _factorise(
    pointers: Any, columns: Any, lower: Any, diagonal: Any, first: int, block: int, inverse: Any
) -> int:
    """Replace A's lower triangle by V, and write 1 / D.

    Return the first row of a block for which no shift is enough; -1: there is none.
    """
    original = lower.copy()
    start = 0
    while start < len(diagonal):
        stop = min(((first + start) // block + 1) * block - first, len(diagonal))
        shift = 0.0
        while not _factorise_block(
            pointers, columns, lower, diagonal, start, stop, shift, inverse
        ):
            if shift > MAX_SHIFT:
                return start
            shift = max(FIRST_SHIFT, SHIFT_GROWTH * shift)
            for place in range(pointers[start], pointers[stop]):
                lower[place] = original[place]
        for place in range(pointers[start], pointers[stop]):
            lower[place] *= inverse[columns[place]]
        start = stop
    return -1


@compiled()
def _factorise_block(
    pointers: Any, columns: Any, lower: Any, diagonal: Any,
    start: int, stop: int, shift: float, inverse: Any,
) -> bool:  # fmt: skip
    """Replace A's lower triangle by W; return whether all pivots are large enough."""
    for i in range(start, stop):
        pivot = diagonal[i] * (1 + shift)
        for place in range(pointers[i], pointers[i + 1]):
            column = columns[place]
            entry, entry_of_column = pointers[i], pointers[column]
            while entry < place and entry_of_column < pointers[column + 1]:
                if columns[entry] < columns[entry_of_column]:
                    entry += 1
                elif columns[entry] > columns[entry_of_column]:
                    entry_of_column += 1
                else:
                    weighted = lower[entry_of_column] * inverse[columns[entry]]
                    lower[place] -= lower[entry] * weighted
                    entry += 1
                    entry_of_column += 1
            pivot -= lower[place] * (lower[place] * inverse[column])
        if not pivot > MIN_PIVOT * diagonal[i]:
            return False
        inverse[i] = 1 / pivot
    return True


@compiled()
def _solve(pointers: Any, columns: Any, lower: Any, inverse: Any, r: Any, z: Any) -> None:
    """Solve (I + V) y = r, then (I + V^T) z = y / D. Unsigned: others are tested for < 0."""
    unit, count = np.uint64(1), np.uint64(len(r))
    for i in range(count):
        total = r[i]
        for place in range(np.uint64(pointers[i]), np.uint64(pointers[i + unit])):
            total -= lower[place] * z[np.uint64(columns[place])]
        z[i] = total
    for i in range(count):
        z[i] *= inverse[i]
    for back in range(count):
        row = count - unit - back
        total = z[row]
        for place in range(np.uint64(pointers[row]), np.uint64(pointers[row + unit])):
            z[np.uint64(columns[place])] -= lower[place] * total
