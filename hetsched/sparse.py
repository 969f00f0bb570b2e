"""Sparse matrices: one input to users, several arrays to kernels.

A sparse matrix is one input `A` to users: a SciPy matrix, a Matrix Market or .npz file. To the
rest of hetsched it is the arrays of its compressed sparse rows, which are inputs like any other:
"A.data", "A.indices" and "A.indptr".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetsched.dtypes import NUMERIC
from hetsched.errors import DataError, UsageError

if TYPE_CHECKING:  # a workload's declaration imports no NumPy
    import numpy as np

PARTS = ("data", "indices", "indptr")
"""The arrays of compressed sparse rows; SciPy's names."""
MAX_INT32 = 2**31 - 1


def part_name(name: str, part: str) -> str:
    """Return the name of one array of the input `name`: "A.data"."""
    return f"{name}.{part}"


Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Input name -> (shape, dtype name)."""


@dataclass(frozen=True)
class SparseMatrix:
    """A square sparse matrix in compressed sparse rows: the input `name`.

    Row i has the values data[indptr[i]:indptr[i + 1]] in the columns indices[same]; the shapes of
    data, indices, indptr are (entries,), (entries,), (rows + 1,). The last two are int32 if their
    values fit, else int64.

    A matrix that comes from SciPy or a file is in order: columns rise in each row, no entry is
    there twice. Its values are float32, float64 or complex. A caller's own three arrays are not
    checked beyond their shapes.
    """

    name: str

    @property
    def arrays(self) -> tuple[str, str, str]:
        """Return the names of the three arrays: data, indices, indptr."""
        data, indices, indptr = (part_name(self.name, part) for part in PARTS)
        return data, indices, indptr

    def check(self, shapes: Shapes) -> None:
        """Raise UsageError if some but not all of the three arrays are given, DataError if their
        shapes or dtypes can't be those of a sparse matrix.
        """
        missing = [name for name in self.arrays if name not in shapes]
        if len(missing) == len(PARTS):
            return
        if missing:
            raise UsageError(
                f"input {self.name} lacks {', '.join(missing)}; give all of"
                f" {', '.join(self.arrays)}, or {self.name} as one sparse matrix"
            )
        data, indices, indptr = (shapes[name] for name in self.arrays)
        for name in self.arrays:
            if len(shapes[name][0]) != 1:
                raise DataError(f"input {name} has {len(shapes[name][0])} axes; it needs one")
        if data[0] != indices[0]:
            raise DataError(
                f"input {self.name}: {data[0][0]} values in data, but {indices[0][0]} columns in"
                " indices"
            )
        if indptr[0][0] < 2:
            raise DataError(f"input {self.name}: indptr has {indptr[0][0]} elements; at least 2")
        for name, (_, dtype) in zip(self.arrays[1:], (indices, indptr), strict=True):
            if not dtype.startswith(("int", "uint")):
                raise DataError(f"input {name} holds {dtype}, not integers")


# ---- those of SciPy, which who has one has imported: only its formats have a method `tocsr`


def sparse_arrays(name: str, matrix: Any) -> Mapping[str, np.ndarray]:
    """Return the arrays of the sparse matrix `matrix`, the input `name`: "A.data", ...

    Nothing is copied of a matrix in CSR format whose entries are sorted and unique, and whose
    dtypes fit. Otherwise the caller's matrix stays as it was.

    Raises UsageError if the input has no name, DataError if it can't be a square sparse matrix.
    """
    if not name:
        raise UsageError('arrays: give the sparse matrix its name, such as {"A": A}')
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        shape = "x".join(map(str, matrix.shape))
        raise DataError(f"input {name} is a sparse matrix of {shape}; it must be square")
    rows = _canonical(name, matrix)
    index_dtype = "int32" if max(rows.nnz, *rows.shape) <= MAX_INT32 else "int64"
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


def value_dtype(name: str, dtype: np.dtype[Any]) -> str:
    """Return the dtype that is computed with: float32, float64 or complex."""
    if dtype.kind not in NUMERIC:
        raise DataError(f"input {name} holds {dtype}; only numeric dtypes are supported")
    if dtype.kind == "c" or dtype.name in ("float32", "float64"):
        return dtype.name
    return "float32" if dtype.name == "float16" else "float64"
