"""Parts shared by the FFT kernels: addresses, scaling."""

from __future__ import annotations

import numpy as np

from hetsched_workloads.fft.inference import DTYPES


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
