"""Parts shared by the FFT kernels: splitting a chunk into calls, addresses, scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from hetsched.workload import Arrays
from hetsched_workloads.fft.inference import DTYPES


def powers(limit: int) -> tuple[int, ...]:
    """Return the powers of two up to `limit`, largest first: powers(6) is (4, 2, 1)."""
    return tuple(1 << k for k in range(max(1, limit).bit_length() - 1, -1, -1))


def pieces(count: int, largest: int) -> Iterator[tuple[int, int]]:
    """Yield (first, size) of the pieces of `count` units.

    As many of size `largest` (a power of two) as fit, then the binary expansion of the remainder;
    every size is in ``powers(largest)``.
    """
    first = 0
    size = largest
    while first < count:
        while size > count - first:
            size >>= 1
        yield first, size
        first += size


def cache_sized(unit_bytes: int, chunk: int, cache_bytes: int) -> int:
    """Return the largest power of two of at most `chunk` units that fit `cache_bytes`; or 1."""
    return powers(min(chunk, cache_bytes // max(1, unit_bytes)))[0]


def pointer(array: np.ndarray, name: str) -> int:
    """Return the address of a C-contiguous array. Raises ValueError for any other."""
    if not array.flags.c_contiguous:
        raise ValueError(f"{name}: not C-contiguous, strides {array.strides}")
    return int(array.__array_interface__["data"][0])


def scale(planes: np.ndarray, factor: float) -> None:
    """Multiply in place by a real number, viewed as reals, which takes half the time."""
    if factor != 1.0:
        real = np.dtype(DTYPES[planes.dtype.name].real).type
        parts = planes.view(real)
        np.multiply(parts, real(factor), out=parts)


class SplitKernel:
    """Transforms a chunk with `transform(x, y)`, at most `units_per_call` planes at a time."""

    def __init__(
        self, transform: Callable[[np.ndarray, np.ndarray], None], units_per_call: int
    ) -> None:
        self._transform = transform
        self.units_per_call = units_per_call

    def __call__(self, inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        for first, size in pieces(len(x), self.units_per_call):
            self._transform(x[first : first + size], y[first : first + size])
