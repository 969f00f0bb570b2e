"""Rows of an iterative job's arrays in device memory, and copies of rows from and to the home."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from hetsched.devices.cuda.job import copy_to_device, copy_to_host
from hetsched.devices.cuda.memory.pinned_memory import Pins
from hetsched.devices.cuda.runtime import Runtime, Stream


class DeviceRows:
    """Some rows of one array, in each of its buffers.

    Parameters
    ----------
    homes : sequence of ndarray, (rows, *unit_shape)
        The home copy: each buffer, with its border rows.
    border : int, rows
        Of the home copy before row 0 of the load.
    count : int, rows
        Room in device memory.

    Attributes
    ----------
    base : int
        The row of the load that is first in device memory.
    values : array, (buffers, count, *unit_shape)
        In device memory.
    """

    def __init__(
        self,
        runtime: Runtime,
        pins: Pins,
        pinned: set[int],
        homes: Sequence[np.ndarray],
        border: int,
        base: int,
        count: int,
    ) -> None:
        home = homes[0]
        self.base = base
        self._homes = homes
        self._border = border
        self._count = count
        self._row_bytes = prod(home.shape[1:]) * home.itemsize
        self._block = runtime.allocate(max(1, len(homes) * count * self._row_bytes))
        self.values: Any = self._block.array(
            0, (len(homes), count, *home.shape[1:]), home.dtype.str
        )
        self._pins = pins
        pins.cover(home, pinned)

    def to_device(self, stream: Stream, buffer: int, first: int, stop: int) -> None:
        """Start a copy of rows of the load from the home."""
        source, target, nbytes = self._copy(buffer, first, stop)
        copy_to_device(stream, target, source, nbytes, self._pins)

    def to_host(self, stream: Stream, buffer: int, first: int, stop: int) -> None:
        """Start a copy of rows of the load to the home."""
        target, source, nbytes = self._copy(buffer, first, stop)
        copy_to_host(stream, target, source, nbytes, self._pins)

    def all_to_device(self, stream: Stream) -> None:
        """Start copies of all rows and buffers from the home."""
        for buffer in range(len(self._homes)):
            self.to_device(stream, buffer, self.base, self.base + self._count)

    def _copy(self, buffer: int, first: int, stop: int) -> tuple[int, int, int]:
        """Return the addresses in the home and on the device, and the number of bytes."""
        rows = self._homes[buffer][first + self._border : stop + self._border]
        home = rows.ctypes.data
        index = buffer * self._count + first - self.base
        device = self._block.address + index * self._row_bytes
        return home, device, rows.nbytes
