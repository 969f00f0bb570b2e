"""Arrays that aren't in memory: read and written block by block, in whole chunks of their store.

Anything with `shape`, `dtype` and slices will do, such as arrays of zarr, h5py and dask.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import threading
from typing import Any

import numpy as np

from hetsched.errors import DataError

MAX_GRANULE_BYTES = 256 << 20
"""Larger chunks are read in parts, several times if they are compressed."""


class Stored:
    """An array-like object seen with its axis of units first. `granule`: units of a chunk."""

    def __init__(
        self, array: Any, axis: int, lock: threading.Lock | None = None, name: str = ""
    ) -> None:
        """`name`: of a file that its library reads."""
        self.array, self.axis = array, axis
        self._lock, self._name = lock, name
        shape = tuple(map(int, array.shape))
        self.shape = (shape[axis], *shape[:axis], *shape[axis + 1 :])
        self.ndim = len(shape)
        self.dtype = np.dtype(array.dtype)
        self.granule = max(1, min(_granule(array, axis), shape[axis]))

    @property
    def nbytes(self) -> int:
        return int(math.prod(self.shape) * self.dtype.itemsize)

    @property
    def unit_bytes(self) -> int:
        return int(math.prod(self.shape[1:]) * self.dtype.itemsize)

    def __getitem__(self, units: slice | np.ndarray) -> Any:
        """Read units: a range, or any, by their numbers."""
        if isinstance(units, slice):
            return self._read(units.start, units.stop)
        breaks = np.flatnonzero(np.diff(units) != 1) + 1
        runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(units, breaks)]
        return np.concatenate([self._read(*run) for run in runs])

    def _read(self, first: int, end: int) -> np.ndarray:
        index = (*(slice(None),) * self.axis, slice(first, end))
        try:
            with self._lock or contextlib.nullcontext():
                values = np.asarray(self.array[index])
        except Exception as error:
            if not self._name:  # an array of the caller's, which knows what is wrong
                raise
            units = f"units {first} to {end - 1} can't be read"
            raise DataError(f"{self._name}: {units}: {reason_of(error)}") from error
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
        return np.moveaxis(values, self.axis, 0)


class Target(Stored):
    """A `Stored` array to write to; a slice of units is a place for results."""

    def __getitem__(self, units: slice | np.ndarray) -> Any:
        assert isinstance(units, slice)
        return Place(self, units.start, units.stop)

    def write(self, first: int, end: int, values: np.ndarray) -> None:
        index = (*(slice(None),) * self.axis, slice(first, end))
        values = np.ascontiguousarray(np.moveaxis(values, 0, self.axis))
        with self._lock or contextlib.nullcontext():
            self.array[index] = values


class Place:
    def __init__(self, target: Target, first: int, end: int) -> None:
        self._target, self._first, self._end = target, first, end
        self.shape = (end - first, *target.shape[1:])

    def __getitem__(self, units: slice) -> Place:
        return Place(self._target, self._first + units.start, self._first + units.stop)

    def write(self, values: np.ndarray) -> None:
        self._target.write(self._first, self._end, values)


def is_mapped(array: Any) -> bool:
    """Return whether an array lies in a memory map whose file keeps what is written to it."""
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(array, np.memmap) and array.mode in ("r", "r+", "w+")


def drop_pages(block: np.ndarray) -> None:
    """Take the pages of a block that `is_mapped` out of memory."""
    base: Any = block
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and block.size:
        origin = np.frombuffer(base, np.uint8).ctypes.data
        low, high = (int(bound) - origin for bound in np.lib.array_utils.byte_bounds(block))
        low -= low % mmap.PAGESIZE
        base.madvise(mmap.MADV_DONTNEED, low, high - low)


def reason_of(error: BaseException) -> str:
    """Return on one line what a library says."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def checked_axis(axis: int, array: Any, what: str) -> int:
    """Return an axis of an array from 0 on. Raises DataError."""
    if not -array.ndim <= axis < array.ndim:
        raise DataError(f"{what} has shape {array.shape}: it has no axis {axis}")
    return int(axis) % int(array.ndim)


def is_stored(value: Any) -> bool:
    """Return whether `value` is an array that must be read block by block."""
    if isinstance(value, np.ndarray | np.generic | list | tuple | int | float | complex):
        return False
    # Tables of pandas, tensors and the like are in memory: NumPy converts them.
    is_in_memory = hasattr(value, "__array_interface__") or (
        hasattr(value, "__array__")
        and not (hasattr(value, "chunks") or hasattr(value, "chunking"))
    )
    return not is_in_memory and all(
        hasattr(value, name) for name in ("shape", "dtype", "ndim", "__getitem__")
    )


def common_granule(arrays: list[Any], targets: list[Any]) -> int:
    """Return the units that are computed together: whole chunks of all arrays, if they are small.

    Chunks of targets are always whole: two threads that write one would lose data.
    """
    needed = math.lcm(*(each.granule for each in targets if isinstance(each, Target)))
    wanted = math.lcm(needed, *(each.granule for each in arrays if isinstance(each, Stored)))
    unit = sum(each.unit_bytes for each in [*arrays, *targets] if isinstance(each, Stored))
    return wanted if wanted * unit <= MAX_GRANULE_BYTES else needed


def _granule(array: Any, axis: int) -> int:
    """Return the length of an array's shards or chunks along an axis."""
    for name in ("shards", "chunks"):
        sizes = getattr(array, name, None)
        if isinstance(sizes, tuple) and len(sizes) == len(array.shape):
            size = sizes[axis]
            return int(max(size) if isinstance(size, tuple) else size)
    return 1
