"""Incomplete Cholesky factors, and solves with them, row by row in loops that numba compiles.

The same preconditioner as `incomplete_cholesky`, M = (I + V) D (I + V^T) with V = W D^-1, but in
the order of rows: a chain of dependent rows costs the latency of an addition for each, not a call
for each level, and one triangle is enough, since the solve with V^T goes through V by columns.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hetsched.workload import Arrays
from hetsched_workloads.pcg.incomplete_cholesky import (
    FIRST_SHIFT,
    MAX_SHIFT,
    MIN_PIVOT,
    SHIFT_GROWTH,
    no_factors,
)
from hetsched_workloads.pcg.inference import PARTS
from hetsched_workloads.pcg.numba_loops import compiled
from hetsched_workloads.pcg.scipy_cpu import ScipyBackend, Solver
from hetsched_workloads.row_cache import RowCache


class RowFactors:
    """The preconditioner of some blocks.

    Parameters
    ----------
    pointers : (rows + 1,) int
        Of these rows; `columns` and `values` are those of the whole matrix.
    first : int
        The first row; a block that begins before it or ends after the last row is cut.
    block : int, rows

    Raises
    ------
    DataError
        A block has no factors.
    """

    def __init__(
        self,
        pointers: np.ndarray,
        columns: np.ndarray,
        values: np.ndarray,
        first: int,
        block: int,
    ) -> None:
        count = len(pointers) - 1
        self._pointers = np.zeros(count + 1, np.int64)
        _count_entries(pointers, columns, first, block, self._pointers)
        size = int(self._pointers[-1])
        self._columns = np.empty(size, np.int32)
        lower, diagonal, inverse = np.empty(size), np.empty(count), np.empty(count)
        _extract(
            pointers, columns, values, first, block, self._pointers, self._columns, lower, diagonal
        )
        bad = _factorise(self._pointers, self._columns, lower, diagonal, first, block, inverse)
        if bad >= 0:
            raise no_factors((first + bad) // block)
        self._lower = lower.astype(values.dtype)
        self._inverse = inverse.astype(values.dtype)

    def solve(self, first: int, stop: int, r: np.ndarray, z: np.ndarray) -> None:
        """Write M^-1 r to z, for the rows `first` up to `stop` here, which are whole blocks."""
        _solve(self._pointers, self._columns, self._lower, self._inverse, first, stop, r, z)


class RowSolver:
    """Solves for the rows `first` up to `stop` of `factors`, which are whole blocks."""

    def __init__(self, factors: RowFactors, first: int, stop: int) -> None:
        self._factors = factors
        self._first = first
        self._stop = stop

    def solve(self, r: np.ndarray, z: np.ndarray) -> None:
        """Write M^-1 r to z."""
        self._factors.solve(self._first, self._stop, r, z)


class RowBackend(ScipyBackend):
    """SciPy's products, and these factors."""

    def __init__(self, block: int) -> None:
        super().__init__(block)
        self._row_factors: RowCache[RowFactors] = RowCache()

    def _solver(self, group: int, first: int, stop: int, inputs: Arrays) -> Solver:
        """Return the solver of the rows `first` up to `stop`, a part of a group of blocks."""
        data, columns, pointers = (inputs[part] for part in PARTS)
        start, end = self._factorised(group, first, stop, len(pointers) - 1)
        factors = self._row_factors.get(
            start,
            end,
            lambda: RowFactors(pointers[start : end + 1], columns, data, start, self._block),
        )
        return RowSolver(factors, first - start, stop - start)


@functools.cache
def compile_for(dtype: str, index_dtype: str) -> None:
    """Compile on a matrix of one row."""
    pointers, columns = np.array([0, 1], index_dtype), np.zeros(1, index_dtype)
    vector = np.ones(1, dtype)
    RowFactors(pointers, columns, vector, 0, 1).solve(0, 1, vector, vector.copy())


@compiled
def _count_entries(
    pointers: Any, columns: Any, first: int, block: int, lower_pointers: Any
) -> None:
    """Write the row pointers of the strictly lower triangles of blocks."""
    for i in range(len(lower_pointers) - 1):
        row = first + i
        block_start = max(row // block * block, first)
        lower_pointers[i + 1] = lower_pointers[i]
        for place in range(pointers[i], pointers[i + 1]):
            if block_start <= columns[place] < row:
                lower_pointers[i + 1] += 1


@compiled
def _extract(
    pointers: Any,
    columns: Any,
    values: Any,
    first: int,
    block: int,
    lower_pointers: Any,
    lower_columns: Any,
    lower: Any,
    diagonal: Any,
) -> None:
    """Copy the strictly lower triangles of blocks, whose columns count from `first`."""
    for i in range(len(diagonal)):
        row = first + i
        block_start = max(row // block * block, first)
        at = lower_pointers[i]
        for place in range(pointers[i], pointers[i + 1]):
            column = columns[place]
            if column == row:
                diagonal[i] = values[place]
            elif block_start <= column < row:
                lower_columns[at] = column - first
                lower[at] = values[place]
                at += 1


@compiled
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


@compiled
def _factorise_block(
    pointers: Any,
    columns: Any,
    lower: Any,
    diagonal: Any,
    start: int,
    stop: int,
    shift: float,
    inverse: Any,
) -> bool:
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


@compiled
def _solve(
    pointers: Any, columns: Any, lower: Any, inverse: Any, first: int, stop: int, r: Any, z: Any
) -> None:
    """Solve (I + V) y = r, then (I + V^T) z = y / D; columns of blocks stay in blocks."""
    unit, start = np.uint64(1), np.uint64(first)
    count = np.uint64(stop - first)
    for i in range(count):
        total = r[i]
        for place in range(np.uint64(pointers[start + i]), np.uint64(pointers[start + i + unit])):
            total -= lower[place] * z[np.uint64(columns[place]) - start]
        z[i] = total
    for i in range(count):
        z[i] *= inverse[start + i]
    for back in range(count):
        row = start + count - unit - back
        total = z[row - start]
        for place in range(np.uint64(pointers[row]), np.uint64(pointers[row + unit])):
            z[np.uint64(columns[place]) - start] -= lower[place] * total
