"""The host's side of arrays in mapped memory, and of resident arrays.

Stored arrays may have another dtype, byte order or alignment than kernels expect; they are
converted on the way.
"""

from __future__ import annotations

import numpy as np

from hetsched.devices.base import HostArray
from hetsched.workload import ArraySpec


class ArenaArray:
    """An array in memory that this process has mapped.

    Parameters
    ----------
    spec : ArraySpec
        What kernels expect.
    stored : ndarray
        The whole array as stored; any dtype, order and alignment.
    """

    def __init__(self, spec: ArraySpec, stored: np.ndarray) -> None:
        self.spec = spec
        self._stored = stored
        self._is_plain = (
            stored.dtype == np.dtype(spec.dtype)
            and stored.flags.c_contiguous
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


def resident_values(array: HostArray) -> np.ndarray:
    """Return a whole resident array as kernels expect it, copied only if necessary."""
    values = array.direct(0, 0)
    if values is None:
        values = np.empty(array.spec.unit_shape, array.spec.dtype)
        array.read(0, 0, values)
    return values


class ResidentArray:
    """A resident array that must be read or converted: once, at its first use."""

    def __init__(self, source: HostArray) -> None:
        self.spec = source.spec
        self._source = source
        self._values: np.ndarray | None = None

    def direct(self, first: int, count: int) -> np.ndarray | None:
        if self._values is None:
            values = np.empty(self.spec.unit_shape, self.spec.dtype)
            self._source.read(0, 0, values)
            self._values = values
        return self._values

    def read(self, first: int, count: int, into: np.ndarray) -> None:
        self._source.read(first, count, into)

    def write(self, first: int, count: int, values: np.ndarray) -> None:
        self._source.write(first, count, values)
        self._values = None
