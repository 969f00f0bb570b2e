"""The host's side of an array in a file, read and written chunk by chunk in bounded memory.

Files are never mapped: a truncated one is an error here instead of SIGBUS. Stored arrays may have
another dtype, byte order or (inputs only) Fortran order than kernels expect; they are converted
on the way.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import numpy as np

from hetsched.errors import NO_SPACE, CantCreate, HetschedError, InternalError, IOFailure
from hetsched.units import counted
from hetsched.workload import ArraySpec

STAGING_BYTES = 1 << 20
"""Bytes converted at a time: they fit the cache, and suffice for full disk speed."""
MAX_ROW_GAP = 16 << 10
"""Bytes. Rows of a Fortran-ordered file at most this far apart are read in one call with the gap:
a call costs as much as reading this much from the page cache. Accurate to a factor of four."""


class FileArray:
    """An array in a file, starting at byte `offset`. The caller keeps `fd` open.

    Parameters
    ----------
    spec : ArraySpec
    fd : int
    shape : tuple of int
    dtype : str
        As stored, byte order included.
    order : "C" or "F"
        "F" can only be read.
    """

    def __init__(
        self,
        spec: ArraySpec,
        fd: int,
        shape: tuple[int, ...],
        dtype: str,
        offset: int = 0,
        order: str = "C",
    ) -> None:
        self.spec = spec
        self._fd = fd
        self._shape = shape or (1,)
        self._dtype = np.dtype(dtype)
        self._offset = offset
        self._is_fortran = order == "F" and len(shape) > 1
        self._is_plain = self._dtype == np.dtype(spec.dtype)
        self._is_whole = spec.is_whole
        self._unit = math.prod(self._shape[1:])

    def direct(self, first: int, count: int) -> np.ndarray | None:
        return None

    def read(self, first: int, count: int, into: np.ndarray) -> None:
        if self._is_whole:
            first, count = 0, self._shape[0]
        if self._is_fortran:
            target = into.reshape((count, *self._shape[1:])).transpose()
            self._read_fortran(target, 0, first, count)
        elif self._is_plain and into.flags.c_contiguous:
            self._pread(_bytes(into), first * self._unit)
        else:
            for piece, item in _pieces(into, first * self._unit, self._dtype.itemsize):
                np.copyto(piece, self._staged(piece.size, item), casting="same_kind")

    def write(self, first: int, count: int, values: np.ndarray) -> None:
        if self._is_fortran:
            raise InternalError(f"output {self.spec.name!r}: files are written in C order only")
        if self._is_whole:
            first = 0
        for piece, item in _pieces(values, first * self._unit, self._dtype.itemsize):
            self._pwrite(_bytes(np.ascontiguousarray(piece, self._dtype)), item)

    def _staged(self, count: int, item: int) -> np.ndarray:
        """Return `count` stored items, starting at `item`."""
        staged = np.empty(count, self._dtype)
        self._pread(_bytes(staged), item)
        return staged

    def _read_fortran(self, target: np.ndarray, row: int, first: int, count: int) -> None:
        """Fill `target` (..., count), axes in the file's order, from the file's `row` on.

        In reversed axis order the file is a C-ordered matrix with one row per element of a unit
        and one column per unit; it is read in slabs of rows that fit the staging memory.
        """
        rows = math.prod(target.shape[:-1])
        file_row = self._shape[0] * self._dtype.itemsize
        staged_row = file_row if file_row <= MAX_ROW_GAP else count * self._dtype.itemsize
        max_rows = max(1, STAGING_BYTES // staged_row)
        if rows <= max_rows:
            slab = self._rows(row, rows, first, count)
            np.copyto(target, slab.reshape(target.shape), casting="same_kind")
            return
        inner = rows // target.shape[0]
        step = max(1, max_rows // inner)
        for i in range(0, target.shape[0], step):
            part = target[i : i + step] if step > 1 else target[i]
            self._read_fortran(part, row + i * inner, first, count)

    def _rows(self, row: int, rows: int, first: int, count: int) -> np.ndarray:
        """Return `count` columns from `first` of `rows` rows of the file, shape (rows, count)."""
        units = self._shape[0]
        if units * self._dtype.itemsize <= MAX_ROW_GAP:
            span = (rows - 1) * units + count
            staged = self._staged(span, row * units + first)
            stride = self._dtype.itemsize
            return np.lib.stride_tricks.as_strided(
                staged, (rows, count), (units * stride, stride), writeable=False
            )
        slab = np.empty((rows, count), self._dtype)
        for i in range(rows):
            self._pread(_bytes(slab[i]), (row + i) * units + first)
        return slab

    def _pread(self, into: memoryview, item: int) -> None:
        """Fill `into`, starting at `item`."""
        position = self._offset + item * self._dtype.itemsize
        while into:
            try:
                count = os.preadv(self._fd, [into], position)
            except OSError as error:
                raise self._failure("read", position, error) from error
            if count == 0:
                raise IOFailure(
                    f"{self.spec.name}: the file ends at byte {position},"
                    f" {counted(len(into), 'byte')} too early; it was truncated while the job ran"
                )
            into = into[count:]
            position += count

    def _pwrite(self, values: memoryview, item: int) -> None:
        position = self._offset + item * self._dtype.itemsize
        while values:
            try:
                count = os.pwrite(self._fd, values, position)
            except OSError as error:
                raise self._failure("write", position, error) from error
            values = values[count:]
            position += count

    def _failure(self, operation: str, position: int, error: OSError) -> HetschedError:
        if error.errno in NO_SPACE:
            return CantCreate(
                f"{self.spec.name}: no space left to write at byte {position} ({error.strerror});"
                " free some space or choose another output"
            )
        return IOFailure(
            f"{self.spec.name}: {operation} error at byte {position}: {error.strerror}"
        )


def _bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _pieces(array: np.ndarray, item: int, itemsize: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield `array` as flat pieces of bounded size, each with the index of its first item.

    `array`, a buffer of a slot or a generated block, starts at `item` of the file.
    """
    if not array.flags.c_contiguous:
        raise InternalError("the buffer of a device is not C-contiguous")
    flat = array.reshape(-1)
    step = max(1, STAGING_BYTES // itemsize)
    for start in range(0, flat.size, step):
        yield flat[start : start + step], item + start
