"""What is attached to a device: segments and files with a job's arrays, and the shared tail.

Arrays are in mapped memory or in files. Stored ones may have another dtype, byte order, alignment
or, in files that are only read, Fortran order than kernels expect; they are converted on the way.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import struct
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.device import TailPart
from hetsched.devices.base import HostArray
from hetsched.errors import NO_SPACE, CantCreate, HetschedError, InternalError, IOFailure
from hetsched.paths import ArrayPath
from hetsched.store.formats import open_place
from hetsched.store.stored import MAX_GRANULE_BYTES, Stored
from hetsched.transport import device_messages
from hetsched.transport.arena import map_unpopulated, populate
from hetsched.units import counted
from hetsched.workload import ArraySpec

STAGING_BYTES = 1 << 20
"""Bytes converted at a time: they fit the cache, and suffice for full disk speed."""
MAX_ROW_GAP = 16 << 10
"""Bytes. Rows of a Fortran-ordered file at most this far apart are read in one call with the gap:
a call costs as much as reading this much from the page cache. Accurate to a factor of four."""
LIBRARY_BYTES = 4 << 20
"""Bytes that a library reads at a time, in whole chunks: some decode several in threads."""
HostArrays = tuple[dict[str, HostArray], dict[str, HostArray]]
"""Inputs and outputs by name."""
_RECORD = struct.Struct("=qq")
"""The attempt whose tail it is, and its next unit."""


class Attachments:
    """Segments and files by key.

    `handed`: what the engine has in memory for the loop of a thread, by key.
    """

    def __init__(self, handed: MutableMapping[int, Any] | None = None) -> None:
        self.tail: TailCounter | None = None  # Of the tails that the device shares with others
        self._handed = {} if handed is None else handed
        self._objects: dict[int, np.ndarray | OpenFile] = {}
        # Of segments without all pages in place, as far as this process knows
        self._populating: dict[int, Iterator[int]] = {}

    def take(self, key: int) -> None:
        """Take over what the engine has handed to this loop in its own process."""
        handed = self._handed.pop(key)
        if isinstance(handed, TailCounter):
            self.tail = handed
        else:
            self._objects[key] = handed

    def attach(self, command: device_messages.Attach, fd: int) -> None:
        file = OpenFile(fd)
        if command.kind == "file":
            self._objects[command.key] = file
        elif command.kind == "tail":
            self.tail = TailCounter(mmap.mmap(fd, command.nbytes), FileLock(file))
        else:
            mapping = map_unpopulated(fd, command.nbytes)
            self._objects[command.key] = np.frombuffer(mapping, np.uint8)
            self._populating[command.key] = _populate(mapping, file)

    def detach(self, keys: Iterable[int]) -> None:
        for key in keys:
            self._objects.pop(key, None)
            self._populating.pop(key, None)

    def populate(self, key: int) -> Iterator[None]:
        """Put the pages of a segment in place, a block at a time; a later call goes on."""
        while (blocks := self._populating.get(key)) is not None:
            if next(blocks, None) is None:
                self._populating.pop(key, None)
            else:
                yield

    def host_arrays(
        self,
        arrays: Sequence[device_messages.StoredArray],
        specs: Sequence[ArraySpec],
        takes_any_layout: bool = False,
    ) -> HostArrays:
        """Return the host arrays of a job; the state of an iterative job isn't among them."""
        specs_by_name = {spec.name: spec for spec in specs}
        inputs: dict[str, HostArray] = {}
        outputs: dict[str, HostArray] = {}
        for stored in arrays:
            spec = specs_by_name.get(stored.array)
            if spec is None:
                continue
            attached = self._attached(stored)
            array: HostArray
            if isinstance(attached, OpenFile):
                array = array_in_file(spec, attached, stored)
            else:
                array = ArenaArray(spec, stored.values(attached), takes_any_layout)
            if spec.role == "resident" and array.direct(0, 0) is None:  # converted once
                values = np.empty(spec.unit_shape, spec.dtype)
                array.read(0, 0, values)
                array = ArenaArray(spec, values)
            (outputs if stored.output else inputs)[stored.array] = array
        return inputs, outputs

    def whole_array(self, stored: device_messages.StoredArray) -> np.ndarray:
        attached = self._attached(stored)
        assert not isinstance(attached, OpenFile), "iterative jobs have no arrays in files"
        return stored.values(attached)

    def _attached(self, stored: device_messages.StoredArray) -> np.ndarray | OpenFile:
        attached = self._objects.get(stored.key)
        if attached is None:
            raise InternalError(f"array {stored.array!r}: nothing is attached as {stored.key}")
        return attached


def _populate(mapping: mmap.mmap, file: OpenFile) -> Iterator[int]:
    yield from populate(mapping, file.fd)


# ---- the shared tail


class TailCounter:
    """The next unit of a tail that several cores share: each takes chunks without asking.

    One attempt at a time has a tail: the first core that takes from a later one resets the
    counter, which is in `memory`.
    """

    def __init__(
        self, memory: mmap.mmap | bytearray, lock: AbstractContextManager[object]
    ) -> None:
        self._memory = memory
        self._lock = lock

    def take(self, attempt: int, part: TailPart) -> tuple[int, int] | None:
        """Take a chunk by the rule of `part`: (first, count); None if nothing remains."""
        with self._lock:
            first = self._next(attempt, part)
            count = part.units_to_take(part.first + part.units - first)
            if not count:
                return None
            _RECORD.pack_into(self._memory, 0, attempt, first + count)
            return first, count

    def is_empty(self, attempt: int, part: TailPart) -> bool:
        with self._lock:
            return self._next(attempt, part) >= part.first + part.units

    def _next(self, attempt: int, part: TailPart) -> int:
        owner, next_unit = _RECORD.unpack_from(self._memory)
        if owner < attempt:
            return part.first
        # A later attempt has begun, so this one has ended: nothing remains.
        return int(next_unit) if owner == attempt else part.first + part.units


class FileLock(AbstractContextManager[None]):
    """Excludes other processes; the kernel releases it when its holder dies."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file

    def __enter__(self) -> None:
        fcntl.lockf(self._file.fd, fcntl.LOCK_EX)

    def __exit__(self, *error: object) -> None:
        fcntl.lockf(self._file.fd, fcntl.LOCK_UN)


# ---- arrays in memory


class ArenaArray:
    """An array in memory; `stored` is all of it, with any dtype, order and alignment."""

    def __init__(
        self, spec: ArraySpec, stored: np.ndarray, takes_any_layout: bool = False
    ) -> None:
        self.spec = spec
        self._stored = stored
        self._is_plain = (
            stored.dtype == np.dtype(spec.dtype)
            and (takes_any_layout or stored.flags.c_contiguous)
            and stored.flags.aligned
        )
        self._is_whole = spec.is_whole

    def direct(self, first: int, count: int) -> np.ndarray | None:
        if not self._is_plain:
            return None
        return self._stored if self._is_whole else self._stored[first : first + count]

    def read(self, first: int, count: int, into: np.ndarray) -> None:
        np.copyto(into, self._part(first, count), casting="same_kind")

    def write(self, first: int, count: int, values: np.ndarray) -> None:
        np.copyto(self._part(first, count), values, casting="same_kind")

    def _part(self, first: int, count: int) -> np.ndarray:
        return self._stored if self._is_whole else self._stored[first : first + count]


# ---- arrays in files


class OpenFile:
    """A file descriptor that is closed with its last reference."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class FileArray:
    """An array in a file, read and written in bounded memory.

    Files are never mapped: a truncated one is an error here instead of SIGBUS. `file`: open, or a
    descriptor that the caller keeps open. `order`: "C", or "F", which can only be read.
    """

    def __init__(
        self,
        spec: ArraySpec,
        file: OpenFile | int,
        shape: tuple[int, ...],
        dtype: str,
        offset: int = 0,
        order: str = "C",
    ) -> None:
        self.spec = spec
        self._file = file  # that stays open while the array exists
        self._fd = file if isinstance(file, int) else file.fd
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
            data = _bytes(np.ascontiguousarray(piece, self._dtype))
            position = self._offset + item * self._dtype.itemsize
            while data:
                try:
                    count = os.pwrite(self._fd, data, position)
                except OSError as error:
                    raise self._failure("write", position, error) from error
                data = data[count:]
                position += count

    def _staged(self, count: int, item: int) -> np.ndarray:
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

    def _failure(self, operation: str, position: int, error: OSError) -> HetschedError:
        if error.errno in NO_SPACE:
            return CantCreate(
                f"{self.spec.name}: no space left to write at byte {position} ({error.strerror});"
                " free some space or choose another output"
            )
        return IOFailure(
            f"{self.spec.name}: {operation} error at byte {position}: {error.strerror}"
        )


class LibraryArray:
    """An array in a file that only the library of its format can read, in whole chunks.

    Of a chunk that a read has taken only a part of, the values are kept for the next one.
    """

    def __init__(
        self, spec: ArraySpec, file: OpenFile, shape: tuple[int, ...], library: str
    ) -> None:
        self.spec = spec
        self._file = file  # that stays open while the array exists
        self._shape = shape
        self._library = library
        self._closers = contextlib.ExitStack()
        self._array: np.ndarray | Stored | None = None
        self._kept: tuple[int, np.ndarray] | None = None

    def __del__(self) -> None:
        self._closers.close()

    def direct(self, first: int, count: int) -> np.ndarray | None:
        return None

    def read(self, first: int, count: int, into: np.ndarray) -> None:
        if self.spec.is_whole:
            first, count = 0, self._shape[0]
            into = into.reshape(self._shape)
        end = first + count
        while first < end:
            start, values = self._values(first, end)
            stop = min(end, start + len(values))
            part = into[first - end + count : stop - end + count]
            np.copyto(part, values[first - start : stop - start], casting="same_kind")
            self._kept = (start, values) if stop < start + len(values) else None
            first = stop

    def write(self, first: int, count: int, values: np.ndarray) -> None:
        raise InternalError(f"output {self.spec.name!r}: libraries only read")

    def _values(self, first: int, end: int) -> tuple[int, np.ndarray]:
        """Return the first of some units from before `first` on, and their values."""
        if self._kept is not None and 0 <= first - self._kept[0] < len(self._kept[1]):
            return self._kept
        self._kept = None
        array = self._opened()
        chunk = array.granule if isinstance(array, Stored) else 1
        unit = max(1, array.nbytes // self._shape[0])
        if chunk * unit > MAX_GRANULE_BYTES:
            chunk = 1
        start = first - first % chunk
        chunks = max(1, min(LIBRARY_BYTES // (chunk * unit), -(-(end - start) // chunk)))
        return start, array[start : min(start + chunks * chunk, self._shape[0])]

    def _opened(self) -> np.ndarray | Stored:
        """Open it under its name: HDF5 files refer to others beside them."""
        if self._array is None:
            path = Path(f"/proc/self/fd/{self._file.fd}").readlink()
            place = ArrayPath(str(path), *self._library.split(":", 1))
            array = open_place(place, 0, self._closers)
            if array.shape != self._shape:
                raise IOFailure(f"{path}: has changed since the job started")
            self._array = array
        return self._array


def array_in_file(
    spec: ArraySpec, file: OpenFile, stored: device_messages.StoredArray
) -> FileArray | LibraryArray:
    if stored.library:
        return LibraryArray(spec, file, stored.shape, stored.library)
    return FileArray(spec, file, stored.shape, stored.dtype, stored.offset, stored.order)


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _pieces(array: np.ndarray, item: int, itemsize: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield `array`, at `item` of the file, as flat pieces with the index of their first item."""
    if not array.flags.c_contiguous:
        raise InternalError("the buffer of a device is not C-contiguous")
    flat = array.reshape(-1)
    step = max(1, STAGING_BYTES // itemsize)
    for start in range(0, flat.size, step):
        yield flat[start : start + step], item + start
