"""Rows of a matrix in CSR form: checks before anything is computed with them.

Values, columns and pointers are those of own rows; pointers count from the matrix's first entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hetsched.errors import DataError
from hetsched.workload import Rows
from hetsched_workloads.vectors import first_true

CHECKED_ROWS = 1 << 14
"""Rows checked at a time, so that temporary arrays stay small."""


def entry_rows(xp: Any, pointers: Any) -> Any:
    """Return the row of each nonzero; the first row is 0."""
    if xp is np:
        rows = np.arange(len(pointers) - 1, dtype=pointers.dtype)
        return np.repeat(rows, np.diff(pointers))
    nonzeros = int(pointers[-1] - pointers[0])
    return xp.searchsorted(pointers - pointers[0], xp.arange(nonzeros), side="right") - 1


def diagonal(xp: Any, rows: Rows, values: Any, columns: Any, pointers: Any) -> Any:
    """Return the diagonal elements of own rows, 0 where there is none."""
    elements = xp.zeros(rows.count, values.dtype)
    for row_of, part in _pieces(xp, rows, pointers):
        is_diagonal = row_of == columns[part]
        elements[row_of[is_diagonal] - rows.first] = values[part][is_diagonal]
    return elements


def check_rows(
    xp: Any, rows: Rows, values: Any, columns: Any, pointers: Any, nonzeros: int
) -> None:
    """Raise DataError unless pointers, columns and values of own rows are those of a matrix."""
    if (row := first_true(xp, pointers[1:] < pointers[:-1])) is not None:
        raise DataError(f"A.indptr falls after row {rows.first + row}; it must rise")
    first, last = int(pointers[0]), int(pointers[-1])
    if first < 0 or last > nonzeros or (rows.is_first and first != 0):
        raise DataError(f"A.indptr reaches from {first} to {last}, A has {nonzeros} nonzeros")
    if rows.is_last and last != nonzeros:
        raise DataError(f"A.indptr ends with {last}, A has {nonzeros} nonzeros")
    for row_of, part in _pieces(xp, rows, pointers):
        _check_entries(xp, row_of, columns[part], values[part], rows.load)


def check_positive(xp: Any, rows: Rows, elements: Any) -> None:
    """Raise DataError unless all of the diagonal elements of own rows are positive."""
    if (index := first_true(xp, ~(elements > 0))) is not None:
        row = rows.first + index
        raise DataError(
            f"A[{row}, {row}] is {float(elements[index]):g}: a positive definite matrix has a"
            " positive diagonal"
        )


def _pieces(xp: Any, rows: Rows, pointers: Any) -> Iterator[tuple[Any, slice]]:
    """Yield (row of each nonzero, place of the nonzeros) of some of the rows at a time."""
    start = int(pointers[0])
    for first in range(0, rows.count, CHECKED_ROWS):
        own = pointers[first : first + CHECKED_ROWS + 1]
        part = slice(int(own[0]) - start, int(own[-1]) - start)
        yield entry_rows(xp, own) + rows.first + first, part


def _check_entries(xp: Any, row_of: Any, columns: Any, values: Any, n: int) -> None:
    if (i := first_true(xp, (columns < 0) | (columns >= n))) is not None:
        column = int(columns[i])
        raise DataError(f"row {int(row_of[i])} of A has column {column}, out of 0 to {n - 1}")
    wrong = (columns[1:] <= columns[:-1]) & (row_of[1:] == row_of[:-1])
    if (i := first_true(xp, wrong)) is not None:
        column, following = int(columns[i]), int(columns[i + 1])
        problem = f"repeats column {column}" if following == column else "is unsorted"
        raise DataError(
            f"row {int(row_of[i])} of A {problem}; use sum_duplicates() and sort_indices()"
        )
    if (i := first_true(xp, ~xp.isfinite(values))) is not None:
        place = f"A[{int(row_of[i])}, {int(columns[i])}]"
        raise DataError(f"{place} is {float(values[i])}; A must be finite")
