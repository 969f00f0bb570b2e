"""Parts shared by the FFT kernels: splitting a chunk into calls, plans, addresses, scaling."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from hetsched.bounded_cache import BoundedCache
from hetsched.workload import Arrays
from hetsched_workloads.fft.declaration import DTYPES

Transform = Callable[[np.ndarray, np.ndarray], None]
"""transform(x, y): one call of the library for all planes of x."""
MAX_PLANS = 64
"""Of a thread, the most recently used ones. Arbitrary: those of about five kinds of job."""


class OwnPlans(threading.local):
    """The calling thread's plans, since a plan serves one thread at a time.

    They are kept from job to job, so a warm `make` takes microseconds.
    """

    def __init__(self) -> None:
        self.kept: BoundedCache[Hashable, Any] = BoundedCache(max_entries=MAX_PLANS)


def powers(limit: int) -> tuple[int, ...]:
    """Return the powers of two up to `limit`, largest first: powers(6) is (4, 2, 1)."""
    return tuple(1 << k for k in range(max(1, limit).bit_length() - 1, -1, -1))


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
    """Transforms a chunk, at most `units_per_call` planes at a time."""

    def __init__(self, transform: Transform, units_per_call: int) -> None:
        self._transform = transform
        self.units_per_call = units_per_call

    def __call__(self, inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        for first in range(0, len(x), self.units_per_call):
            part = slice(first, first + self.units_per_call)
            self._transform(x[part], y[part])
