"""Parts shared by the FFT kernels: the size of their calls, addresses, scaling."""

from __future__ import annotations

import numpy as np

from hetsched_workloads.fft.inference import DTYPES

CACHE_BYTES = 1 << 20
"""Bytes of the planes that one call transforms: enough to hide the cost of the call.

Measured: with one 64x64 plane per call, calls cost 10 % on one thread and 40 % on two, which
contend for the interpreter lock; with 32 planes per call nothing.
"""


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
