"""NumPy arrays on mapped segments. The only file of transport that needs NumPy."""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched.errors import DataError


class Exporter:
    """Stands between a mapping and the arrays on it: NumPy keeps it as their base.

    Arrays come and go (a slice outlives the array it was cut from, and NumPy shortens the chain of
    bases); this object lives exactly as long as any of them. Its memoryview keeps the mapping from
    being closed.

    Attributes
    ----------
    owner : object
        The Segment whose memory it is.
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


def view(
    owner: object,
    mapping: mmap.mmap,
    shape: tuple[int, ...],
    dtype: str,
    offset: int = 0,
    gone: Callable[[], None] | None = None,
) -> np.ndarray:
    """A C-contiguous array on `mapping` from byte `offset` on; it keeps the mapping alive.

    `gone` is called once, when the last array that shares this memory has died, on any thread.

    Raises
    ------
    DataError
        It reaches past the end, or `dtype` holds objects.
    """
    kind = np.dtype(dtype)
    if kind.hasobject or min(shape, default=0) < 0:
        raise DataError(f"shape {shape}, dtype {dtype}: can't live in shared memory")
    nbytes = kind.itemsize * math.prod(shape)
    if offset < 0 or offset + nbytes > len(mapping):
        raise DataError(
            f"an array of {nbytes} bytes at {offset} reaches past its segment"
            f" of {len(mapping)} bytes"
        )
    exporter = Exporter(owner, mapping, tuple(shape), kind, offset)
    array = np.asarray(exporter)
    if gone is not None:  # the last that can fail: until then the caller has what it holds
        weakref.finalize(exporter, gone).atexit = False
    return array


def located(array: np.ndarray) -> tuple[Any, int] | None:
    """The segment that `array` lies in and its offset there, bytes; None for ordinary memory."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, Exporter):
        return None
    return base.owner, _address(array) - base.start


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
