"""Sparse matrices: one input to users, several arrays to kernels.

A sparse matrix is one input `A` to users: a SciPy matrix, a Matrix Market or .npz file. To the
rest of hetsched it is the arrays of its compressed sparse rows, which are inputs like any other:
"A.data", "A.indices" and "A.indptr".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hetsched.errors import DataError, UsageError

PARTS = ("data", "indices", "indptr")
"""The arrays of compressed sparse rows; SciPy's names."""


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
        """Check which arrays are given, and their shapes.

        Raises
        ------
        UsageError
            Some but not all of the three are given.
        DataError
            Their shapes or dtypes can't be those of a sparse matrix.
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
