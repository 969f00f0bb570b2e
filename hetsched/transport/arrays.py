"""NumPy arrays on mapped segments. The only file of transport that needs NumPy."""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hetsched.errors import DataError

if TYPE_CHECKING:
    from hetsched.transport.device_messages import StoredArray


class MappingExporter:
    """The base of the arrays on a mapping: it exists exactly as long as any of them.

    A slice can outlive the array that it was taken from, but NumPy keeps the base of both alive.
    The memoryview prevents the mapping from being closed meanwhile.

    Attributes
    ----------
    owner : object
        The Segment that the memory belongs to.
    start : int
        Address of the mapping's first byte.
    """

    def __init__(
        self, owner: object, mapping: mmap.mmap, shape: tuple[int, ...], dtype: Any, offset: int
    ) -> None:
        self.owner = owner
        self._buffer = memoryview(mapping)
        self.start = _address(np.frombuffer(self._buffer, np.uint8))
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (self.start + offset, False),
        }


def array_view(
    owner: object,
    mapping: mmap.mmap,
    shape: tuple[int, ...],
    dtype: str,
    offset: int = 0,
    on_release: Callable[[], None] | None = None,
) -> np.ndarray:
    """Return a C-contiguous array at byte `offset` of `mapping`; it keeps the mapping alive.

    `on_release` is called once, on any thread, after the last array on this memory is freed.

    Raises
    ------
    DataError
        The array extends past the end, or `dtype` contains objects.
    """
    kind = np.dtype(dtype)
    if kind.hasobject or min(shape, default=0) < 0:
        raise DataError(f"shape {shape}, dtype {dtype}: can't be stored in shared memory")
    nbytes = kind.itemsize * math.prod(shape)
    if offset < 0 or offset + nbytes > len(mapping):
        raise DataError(
            f"an array of {nbytes} bytes at {offset} extends past its segment"
            f" of {len(mapping)} bytes"
        )
    exporter = MappingExporter(owner, mapping, tuple(shape), kind, offset)
    array = np.asarray(exporter)
    if on_release is not None:  # last, so that an error leaves the reference with the caller
        weakref.finalize(exporter, on_release).atexit = False
    return array


def stored_values(stored: StoredArray, memory: np.ndarray | mmap.mmap) -> np.ndarray:
    """Return the array that `stored` describes in the memory of its segment."""
    order: Literal["F", "C"] = "F" if stored.order == "F" else "C"
    return np.ndarray(stored.shape, np.dtype(stored.dtype), memory, stored.offset, order=order)


def locate_in_segment(array: np.ndarray) -> tuple[Any, int] | None:
    """Return the segment of `array` and its offset there in bytes; None for other memory."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, MappingExporter):
        return None
    return base.owner, _address(array) - base.start


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
