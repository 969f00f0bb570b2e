"""Sparse matrices of SciPy as inputs: their compressed sparse rows, as three arrays.

SciPy itself isn't imported: whoever has a sparse matrix has imported it. All of its formats, and
nothing else, have the method `tocsr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hetsched.dtypes import NUMERIC
from hetsched.errors import DataError, UsageError
from hetsched.sparse import PARTS, part_name

MAX_INT32 = 2**31 - 1


def sparse_arrays(name: str, matrix: Any) -> Mapping[str, np.ndarray]:
    """Return the arrays of the sparse matrix `matrix`, the input `name`: "A.data", ...

    Nothing is copied of a matrix in CSR format whose entries are sorted and unique, and whose
    dtypes fit. Otherwise the caller's matrix stays as it was.

    Raises
    ------
    UsageError
        The input has no name.
    DataError
        Not square, or its indices are out of range.
    """
    if not name:
        raise UsageError('arrays: give the sparse matrix its name, such as {"A": A}')
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = "x".join(map(str, matrix.shape))
        raise DataError(f"input {name} is a sparse matrix of {shape}; it must be square")
    rows = _canonical(name, matrix)
    index_dtype = np.int32 if max(rows.nnz, *rows.shape) <= MAX_INT32 else np.int64
    arrays = {
        "data": rows.data.astype(value_dtype(name, rows.dtype), copy=False),
        "indices": rows.indices.astype(index_dtype, copy=False),
        "indptr": rows.indptr.astype(index_dtype, copy=False),
    }
    return {part_name(name, part): arrays[part] for part in PARTS}


def _canonical(name: str, matrix: Any) -> Any:
    """Return `matrix` in CSR format, each row sorted and without duplicates."""
    try:
        rows = matrix.tocsr()
        if hasattr(rows, "check_format"):
            rows.check_format()
    except (ValueError, IndexError, TypeError) as error:
        raise DataError(f"input {name} is not a valid sparse matrix: {error}") from None
    if rows.nnz == 0:
        raise DataError(f"input {name} is a sparse matrix without entries")
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def value_dtype(name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that is computed with: float32, float64 or complex."""
    if dtype.kind not in NUMERIC:
        raise DataError(f"input {name} holds {dtype}; only numeric dtypes are supported")
    if dtype.kind == "c" or dtype in (np.float32, np.float64):
        return dtype.newbyteorder("=")
    return np.dtype(np.float32 if dtype == np.float16 else np.float64)
