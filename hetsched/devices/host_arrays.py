"""The host's side of a job's arrays: in mapped memory, or in a file that is read chunk by chunk.

Stored arrays may have another dtype, byte order, alignment or (to be read) Fortran order than the
kernels want; they are converted on the way, in bounded memory. Files are never mapped: one that is
truncated is an error here and not SIGBUS.
"""

from __future__ import annotations

import errno
import math
import os
import threading
from collections.abc import Iterator

import numpy as np

from hetsched.devices.base import HostArray
from hetsched.errors import CantCreate, HetschedError, InternalError, IOFailure
from hetsched.workload import ArraySpec

STAGING = 1 << 20
"""Bytes that a conversion holds at a time: fits the cache, and is enough for full disk speed."""
READ_THROUGH = 16 << 10
"""Rows of a Fortran-ordered file that lie no further apart are read with what lies between them:
a call costs as much as reading so many bytes from the page cache. Good within a factor of four."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ArenaArray:
    """An array in memory that this process has mapped.

    Parameters
    ----------
    spec : ArraySpec
        What kernels expect.
    stored : ndarray
        All of the array as it is stored; any dtype, order and alignment.
    """

    def __init__(self, spec: ArraySpec, stored: np.ndarray) -> None:
        self.spec = spec
        self._stored = stored
        self._plain = (
            stored.dtype == np.dtype(spec.dtype)
            and stored.flags.c_contiguous
            and stored.flags.aligned
        )
        self._whole = spec.role == "resident"

    def direct(self, first: int, count: int) -> np.ndarray | None:
        return self._part(first, count) if self._plain else None

    def read(self, first: int, count: int, into: np.ndarray) -> None:
        np.copyto(into, self._part(first, count), casting="same_kind")

    def write(self, first: int, count: int, values: np.ndarray) -> None:
        np.copyto(self._part(first, count), values, casting="same_kind")

    def _part(self, first: int, count: int) -> np.ndarray:
        return self._stored if self._whole else self._stored[first : first + count]


class FileArray:
    """An array in a file, from byte `offset` on. The caller keeps `fd` open.

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
        self._fortran = order == "F" and len(shape) > 1
        self._plain = self._dtype == np.dtype(spec.dtype)
        self._whole = spec.role == "resident"
        self._unit = math.prod(self._shape[1:])

    def direct(self, first: int, count: int) -> np.ndarray | None:
        return None

    def read(self, first: int, count: int, into: np.ndarray) -> None:
        if self._whole:
            first, count = 0, self._shape[0]
        if self._fortran:
            target = into.reshape((count, *self._shape[1:])).transpose()
            self._read_fortran(target, 0, first, count)
        elif self._plain and into.flags.c_contiguous:
            self._pread(_bytes(into), first * self._unit)
        else:
            for part, at in _pieces(into, first * self._unit, self._dtype.itemsize):
                np.copyto(part, self._staged(part.size, at), casting="same_kind")

    def write(self, first: int, count: int, values: np.ndarray) -> None:
        if self._fortran:
            raise InternalError(f"output {self.spec.name!r}: files are written in C order only")
        if self._whole:
            first = 0
        for part, at in _pieces(values, first * self._unit, self._dtype.itemsize):
            self._pwrite(_bytes(np.ascontiguousarray(part, self._dtype)), at)

    def _staged(self, items: int, at: int) -> np.ndarray:
        """`items` stored items from item `at` on."""
        staged = np.empty(items, self._dtype)
        self._pread(_bytes(staged), at)
        return staged

    def _read_fortran(self, target: np.ndarray, row: int, first: int, count: int) -> None:
        """Fill `target` (..., count), axes in the file's order, from the file's rows `row`..

        Seen from its last axis on, the file is a matrix of C order with one row for each element
        of a unit and one column for each unit; slabs of rows are read that fit the staging memory.
        """
        rows = math.prod(target.shape[:-1])
        width = self._shape[0] * self._dtype.itemsize
        most = max(
            1, STAGING // (width if width <= READ_THROUGH else count * self._dtype.itemsize)
        )
        if rows <= most:
            slab = self._rows(row, rows, first, count)
            np.copyto(target, slab.reshape(target.shape), casting="same_kind")
            return
        inner = rows // target.shape[0]
        step = max(1, most // inner)
        for i in range(0, target.shape[0], step):
            part = target[i : i + step] if step > 1 else target[i]
            self._read_fortran(part, row + i * inner, first, count)

    def _rows(self, row: int, rows: int, first: int, count: int) -> np.ndarray:
        """Columns first.. of the file's rows `row`.., (rows, count)."""
        units = self._shape[0]
        if units * self._dtype.itemsize <= READ_THROUGH:
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
        at = self._offset + item * self._dtype.itemsize
        while into:
            try:
                got = os.preadv(self._fd, [into], at)
            except OSError as error:
                raise self._failure("read", at, error) from error
            if got == 0:
                raise IOFailure(
                    f"{self.spec.name}: its file ends at byte {at}, {len(into)} bytes too early;"
                    " it was cut while the job ran"
                )
            into = into[got:]
            at += got

    def _pwrite(self, values: memoryview, item: int) -> None:
        at = self._offset + item * self._dtype.itemsize
        while values:
            try:
                put = os.pwrite(self._fd, values, at)
            except OSError as error:
                raise self._failure("write", at, error) from error
            values = values[put:]
            at += put

    def _failure(self, what: str, at: int, error: OSError) -> HetschedError:
        if error.errno in _NO_ROOM:
            return CantCreate(
                f"{self.spec.name}: no room to write at byte {at} ({error.strerror});"
                " free some space or choose another output"
            )
        return IOFailure(f"{self.spec.name}: {what} error at byte {at}: {error.strerror}")


class Loaded:
    """A resident array read whole at its first use and shared by the devices of one process."""

    def __init__(self, source: HostArray) -> None:
        self.spec = source.spec
        self._source = source
        self._lock = threading.Lock()
        self._values: np.ndarray | None = None

    def direct(self, first: int, count: int) -> np.ndarray | None:
        with self._lock:
            if self._values is None:
                values = np.empty(self.spec.unit_shape, self.spec.dtype)
                self._source.read(0, 0, values)
                self._values = values
        return self._values

    def read(self, first: int, count: int, into: np.ndarray) -> None:
        self._source.read(first, count, into)

    def write(self, first: int, count: int, values: np.ndarray) -> None:
        with self._lock:
            self._source.write(first, count, values)
            self._values = None


def _bytes(array: np.ndarray) -> memoryview:
    """The bytes of a C-contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _pieces(array: np.ndarray, at: int, itemsize: int) -> Iterator[tuple[np.ndarray, int]]:
    """`array` in flat pieces of bounded size, each with its item's index in the file.

    Views where `array` is C-contiguous, as the buffers of slots and generated blocks are.
    """
    if not array.flags.c_contiguous:
        raise InternalError("a buffer of a device is not C-contiguous")
    flat = array.reshape(-1)
    step = max(1, STAGING // itemsize)
    for start in range(0, flat.size, step):
        yield flat[start : start + step], at + start
