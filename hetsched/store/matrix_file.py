"""Sparse matrices and arrays in Matrix Market and .npz files, read by a process of its own.

The shapes are known from the beginning of the file.
"""

from __future__ import annotations

import io
import math
import os
import sys
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched import errors
from hetsched.sparse import MAX_INT32, sparse_arrays, value_dtype
from hetsched.store import formats
from hetsched.store.reader_process import START_SECONDS, read_apart, serve
from hetsched.units import format_bytes

MARKET_MAGIC = b"%%MatrixMarket"
NPZ_MAGIC = b"PK"
NPY_MAGIC = b"\x93NUMPY"
GZIP_MAGIC = b"\x1f\x8b"
HOW_TO_SAVE = "a sparse matrix is needed, as scipy.sparse.save_npz and scipy.io.mmwrite save it"
MAX_HEADER = 1 << 20
"""Bytes of the header with its comments; SuiteSparse's largest have some KiB."""
MAX_EXTENT = 2**62
"""Rows or columns that a header may claim: more would overflow int64 arithmetic."""
BYTES_PER_DATA_BYTE = 5
"""Memory of the reader per byte of the arrays: SciPy reads triples, expands symmetric ones and
sorts them by rows, each time in new arrays."""
MIN_READ_RATE = 2e6
"""Bytes per second; a core reads 50 to 150 MB/s of text."""

Shapes = dict[str, tuple[tuple[int, ...], str]]
"""Part of the input ("" for a dense array) -> (shape, dtype name)."""


@dataclass(frozen=True)
class MatrixHeader:
    """`entries`: of a sparse matrix, once all that the file implies is stored: an estimate for
    symmetric ones, exact if their diagonal is full. None: a dense array.
    """

    shape: tuple[int, ...]
    dtype: str
    entries: int | None = None

    def sparse_shapes(self, path: str) -> Shapes:
        """Return the shapes of compressed sparse rows. Raises DataError."""
        if self.entries is None:
            raise errors.DataError(f"{path}: holds a dense array; {HOW_TO_SAVE}")
        rows, columns = self.shape
        if rows != columns:
            raise errors.DataError(
                f"{path}: holds a matrix of {rows}x{columns}; it must be square"
            )
        if not self.entries:
            raise errors.DataError(f"{path}: holds a matrix without entries")
        index = "int32" if max(self.entries, rows) <= MAX_INT32 else "int64"
        return {
            "data": ((self.entries,), self.dtype),
            "indices": ((self.entries,), index),
            "indptr": ((rows + 1,), index),
        }

    def dense_shape(self, path: str) -> Shapes:
        if self.entries is not None:
            raise errors.DataError(f"{path}: holds a sparse matrix; a dense array is needed")
        return {"": (self.shape, self.dtype)}


def is_matrix_file(fd: int) -> bool:
    with suppress(OSError):
        start = os.pread(fd, len(MARKET_MAGIC), 0)
        return start.startswith((MARKET_MAGIC, NPZ_MAGIC, GZIP_MAGIC))
    return False


def read_matrix_header(path: str, fd: int) -> MatrixHeader:
    try:
        start = os.pread(fd, MAX_HEADER, 0)
    except OSError as error:
        raise errors.IOFailure(f"{path}: {error.strerror}") from None
    if start.startswith(MARKET_MAGIC):
        return _market_header(path, start)
    if start.startswith(NPZ_MAGIC):
        with (
            open(fd, "rb", closefd=False) as file,
            formats.open_archive(path, "an .npz file", file) as npz,
        ):
            return _npz_header(path, npz)
    if start.startswith(NPY_MAGIC):
        raise errors.DataError(f"{path}: holds a dense array; {HOW_TO_SAVE}")
    if start.startswith(GZIP_MAGIC):
        raise errors.DataError(
            f"{path}: is compressed with gzip; decompress it first, with gunzip"
        )
    raise errors.DataError(
        f"{path}: is neither a Matrix Market file (scipy.io.mmwrite) nor an .npz file"
        " (scipy.sparse.save_npz)"
    )


def _market_header(path: str, start: bytes) -> MatrixHeader:
    import scipy.io  # 16 MiB that a daemon without such files doesn't need

    try:
        found = scipy.io.mminfo(io.BytesIO(start))
    except (ValueError, OverflowError, TypeError) as error:
        raise errors.DataError(
            f"{path}: broken Matrix Market header: {str(error)[:200]}"
        ) from None
    rows, columns, entries, kind, field, symmetry = found
    if max(rows, columns, entries) >= MAX_EXTENT:
        raise errors.DataError(f"{path}: broken Matrix Market header: {rows}x{columns}, {entries}")
    dtype = "complex128" if field == "complex" else "float64"
    if kind == "array":
        if not rows * columns:
            raise errors.DataError(f"{path}: holds no elements ({rows}x{columns})")
        return MatrixHeader((rows,) if columns == 1 else (rows, columns), dtype)
    if symmetry == "skew-symmetric":
        entries *= 2
    elif symmetry != "general":
        entries = 2 * entries - min(rows, entries)
    return MatrixHeader((rows, columns), dtype, entries)


def _npz_header(path: str, archive: zipfile.ZipFile) -> MatrixHeader:
    names = [name for name in archive.namelist() if name.endswith(".npy")]
    is_matrix = "format.npy" in names
    if not is_matrix and len(names) != 1:
        raise errors.DataError(
            f"{path}: holds the arrays {', '.join(sorted(names)[:4]) or '(none)'}: neither one"
            " array nor a sparse matrix of scipy.sparse.save_npz"
        )
    name = "data.npy" if is_matrix else names[0]
    with archive.open(name) as member:
        shape, _, dtype = formats.parse_header(f"{path}: {name}", member)
    if not is_matrix:
        if not math.prod(shape):
            raise errors.DataError(f"{path}: holds no elements")
        return MatrixHeader(shape, dtype.newbyteorder("=").name)
    with archive.open("shape.npy") as member:
        _, _, kind = formats.parse_header(f"{path}: shape.npy", member)
        rows, columns = map(int, np.frombuffer(member.read(2 * kind.itemsize), kind))
    if min(rows, columns) < 0:
        raise errors.DataError(f"{path}: a sparse matrix of shape {rows}x{columns}")
    return MatrixHeader((rows, columns), value_dtype(path, dtype), math.prod(shape))


# ---- reading


def read_matrix(path: str, fd: int, shapes: Shapes, max_bytes: int) -> dict[str, np.ndarray]:
    """Return the arrays of the file behind `fd` by part: those of `shapes`."""
    nbytes = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes.values())
    if nbytes > max_bytes:
        raise errors.DataError(
            f"{path}: needs {format_bytes(nbytes)} of shared memory, the limit here is"
            f" {format_bytes(max_bytes)}"
        )
    outputs = {part: os.memfd_create(f"hetsched-matrix-{part}") for part in shapes}
    try:
        read_apart(
            __name__,
            path,
            list(map(str, (fd, *outputs.values()))),
            nbytes=BYTES_PER_DATA_BYTE * nbytes,
            seconds=reading_seconds(os.fstat(fd).st_size),
            fds=(fd, *outputs.values()),
        )
        # Each is freed with its array
        return {
            part: np.load(f"/proc/self/fd/{output}", mmap_mode="r", allow_pickle=False)
            for part, output in outputs.items()
        }
    finally:
        for output in outputs.values():
            os.close(output)


def reading_seconds(size: int) -> float:
    return START_SECONDS + size / MIN_READ_RATE


# ---- in the process that reads one file


def _save_parts(arguments: Sequence[str]) -> str:
    fd, *outputs = map(int, arguments)
    for output, array in zip(outputs, _arrays(fd, len(outputs) > 1), strict=True):
        with open(output, "wb") as file:
            np.save(file, array, allow_pickle=False)
    return ""


def _arrays(fd: int, is_wanted_sparse: bool) -> Iterable[np.ndarray]:
    import scipy.sparse

    is_text = os.pread(fd, len(MARKET_MAGIC), 0) == MARKET_MAGIC
    try:
        matrix = _read(fd, is_text)
    except (TypeError, *formats.ARCHIVE_ERRORS) as error:
        kind = "Matrix Market" if is_text else ".npz"
        raise errors.DataError(f"broken {kind} file: {str(error)[:200]}") from None
    if is_wanted_sparse:
        rows = matrix if hasattr(matrix, "tocsr") else scipy.sparse.csr_array(matrix)
        return sparse_arrays("A", rows).values()
    array = np.asarray(matrix)
    return [
        np.ascontiguousarray(array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array)
    ]


def _read(fd: int, is_text: bool) -> Any:
    import scipy.io
    import scipy.sparse

    if is_text:
        return scipy.io.mmread(f"/proc/self/fd/{fd}")
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)  # the position is shared with the process that has read the header
        archive = np.load(file, allow_pickle=False)
        if "format" in archive.files:
            file.seek(0)
            return scipy.sparse.load_npz(file)
        return archive[archive.files[0]]


if __name__ == "__main__":
    sys.exit(serve(_save_parts))
