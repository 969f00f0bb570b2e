"""Parts shared by the FFT kernels: addresses, scaling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hetsched.workload import Arrays
from hetsched_workloads.batches import pieces
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
