"""What the FFT kernels share: a chunk as calls of plans for powers of two of planes."""

from __future__ import annotations

import numpy as np

from hetsched_workloads.fft.inference import DTYPES

CACHE_BYTES = 1 << 20
"""Of the planes that one call handles together: enough to hide the call.

Measured: 64x64 planes one by one lose 10 % to calls on one thread and 40 % on two, which wait for
each other's interpreter lock; 32 at a time nothing.
"""


def pointer(array: np.ndarray, name: str) -> int:
    """The address of a C-contiguous array. Raises ValueError for any other."""
    if not array.flags.c_contiguous:
        raise ValueError(f"{name}: not C-contiguous, strides {array.strides}")
    return int(array.__array_interface__["data"][0])


def scale(planes: np.ndarray, factor: float) -> None:
    """Multiply in place by a real number; as reals, which takes half the time."""
    if factor != 1.0:
        real = np.dtype(DTYPES[planes.dtype.name].real).type
        parts = planes.view(real)
        np.multiply(parts, real(factor), out=parts)
