"""What is known of a matrix from the beginning of its file."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.errors import DataError

HOW_TO_SAVE = "a sparse matrix is needed, as scipy.sparse.save_npz and scipy.io.mmwrite save it"
MAX_INT32 = 2**31 - 1
MAX_EXTENT = 2**62
"""Rows or columns that a header may claim: more would overflow int64 arithmetic."""

Shapes = dict[str, tuple[tuple[int, ...], str]]
"""Part of the input ("" for a dense array) -> (shape, dtype name)."""


@dataclass(frozen=True)
class MatrixHeader:
    """A matrix in a file.

    Attributes
    ----------
    shape : tuple of int
        Of the matrix, or of the dense array.
    dtype : str
        NumPy's name of what it is read as.
    entries : int or None
        Of a sparse matrix, once all that the file implies is stored: an estimate for symmetric
        ones, exact if their diagonal is full. None: a dense array.
    """

    shape: tuple[int, ...]
    dtype: str
    entries: int | None = None

    def sparse_shapes(self, path: str) -> Shapes:
        """Return the shapes of compressed sparse rows. Raises DataError if it isn't square."""
        if self.entries is None:
            raise DataError(f"{path}: holds a dense array; {HOW_TO_SAVE}")
        rows, columns = self.shape
        if rows != columns:
            raise DataError(f"{path}: holds a matrix of {rows}x{columns}; it must be square")
        if not self.entries:
            raise DataError(f"{path}: holds a matrix without entries")
        index = "int32" if max(self.entries, rows) <= MAX_INT32 else "int64"
        return {
            "data": ((self.entries,), self.dtype),
            "indices": ((self.entries,), index),
            "indptr": ((rows + 1,), index),
        }

    def dense_shape(self, path: str) -> Shapes:
        """Return the shape of the dense array. Raises DataError if it is sparse."""
        if self.entries is not None:
            raise DataError(f"{path}: holds a sparse matrix; a dense array is needed")
        return {"": (self.shape, self.dtype)}
