"""FFT by MKL's DFTI interface, batched descriptors, through ctypes (which releases the GIL).

MKL contains a wrapper with FFTW's interface that replaces the real one in a pyFFTW imported later,
even if libmkl_rt is loaded with RTLD_LOCAL, because it loads its parts globally. So pyFFTW is
imported first. One thread per kernel (SEQUENTIAL): MKL's OpenMP leaves files in shared memory
when its process is killed.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyfftw as _before_mkl  # noqa: F401

from hetsched_workloads.declarations import shared_library
from hetsched_workloads.fft import FftParams
from hetsched_workloads.fft.libraries import OwnPlans, pointer

# mkl_dfti.h
FORWARD_SCALE, BACKWARD_SCALE, NUMBER_OF_TRANSFORMS, CONJUGATE_EVEN_STORAGE = 4, 5, 7, 10
PLACEMENT, INPUT_STRIDES, OUTPUT_STRIDES, INPUT_DISTANCE, OUTPUT_DISTANCE = 11, 12, 13, 14, 15
COMPLEX, REAL, SINGLE, DOUBLE, COMPLEX_COMPLEX, NOT_INPLACE = 32, 33, 35, 36, 39, 44
SEQUENTIAL = 1

_descriptors = OwnPlans()


@functools.cache
def library() -> ctypes.CDLL:
    """Load libmkl_rt, one thread per call. Raises OSError if it isn't installed or loadable."""
    runtime = shared_library("mkl", "libmkl_rt.so")
    if not runtime:
        raise OSError("MKL isn't installed: pip install 'hetsched[mkl]'")
    os.environ.setdefault("MKL_THREADING_LAYER", "SEQUENTIAL")
    mkl = ctypes.CDLL(str(runtime[1]), mode=ctypes.RTLD_LOCAL)
    mkl.MKL_Set_Threading_Layer(SEQUENTIAL)
    mkl.DftiErrorMessage.restype = ctypes.c_char_p
    for name in ("CreateDescriptor", "SetValue", "CommitDescriptor", "ComputeForward",
                 "ComputeBackward", "FreeDescriptor"):  # fmt: skip
        getattr(mkl, "Dfti" + name).restype = ctypes.c_long
    return mkl


class Descriptor:
    """A committed DFTI descriptor: units of x into y along some axes, real where x or y are.

    In place if x is y. Raises RuntimeError with MKL's message.
    """

    def __init__(
        self, x: np.ndarray, y: np.ndarray, axes: Sequence[int], backward: bool, factor: float
    ) -> None:
        self._mkl, self._handle = library(), ctypes.c_void_p()
        self._compute = "ComputeBackward" if backward else "ComputeForward"
        self._offsets = list(zip(_offsets(x, axes), _offsets(y, axes), strict=True))
        is_real = x.dtype.kind == "f" or y.dtype.kind == "f"
        sizes = [max(x.shape[axis], y.shape[axis]) for axis in axes]
        lengths = (ctypes.c_long * len(axes))(*sizes)
        strides = [
            (ctypes.c_long * (len(axes) + 1))(0, *(a.strides[axis] // a.itemsize for axis in axes))
            for a in (x, y)
        ]
        settings: list[tuple[int, Any]] = [
            (NUMBER_OF_TRANSFORMS, ctypes.c_long(len(x))),
            (INPUT_STRIDES, strides[0]),
            (OUTPUT_STRIDES, strides[1]),
            (INPUT_DISTANCE, ctypes.c_long(x.strides[0] // x.itemsize)),
            (OUTPUT_DISTANCE, ctypes.c_long(y.strides[0] // y.itemsize)),
            (BACKWARD_SCALE if backward else FORWARD_SCALE, ctypes.c_double(factor)),
        ]
        if is_real:
            settings.append((CONJUGATE_EVEN_STORAGE, ctypes.c_int(COMPLEX_COMPLEX)))
        if x is not y:
            settings.append((PLACEMENT, ctypes.c_int(NOT_INPLACE)))
        precision = DOUBLE if np.finfo(x.dtype).dtype == np.float64 else SINGLE
        self._call("CreateDescriptor", ctypes.byref(self._handle), precision,
                   REAL if is_real else COMPLEX, ctypes.c_long(len(axes)),
                   lengths if len(axes) > 1 else lengths[0])  # fmt: skip
        for name, value in settings:
            self._call("SetValue", self._handle, name, value)
        self._call("CommitDescriptor", self._handle)

    def __del__(self) -> None:
        if self._handle:
            self._mkl.DftiFreeDescriptor(ctypes.byref(self._handle))

    def run(self, source: int, target: int) -> None:
        """Transform from address `source` to `target`, equal if in place."""
        for x, y in self._offsets:
            self._call(
                self._compute,
                self._handle,
                ctypes.c_void_p(source + x),
                ctypes.c_void_p(target + y),
            )

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._mkl, "Dfti" + name)(*arguments)
        if status:
            text = self._mkl.DftiErrorMessage(ctypes.c_long(status)).decode()
            raise RuntimeError(f"Dfti{name}: {text} ({status})")


def _offsets(array: np.ndarray, axes: Sequence[int]) -> list[int]:
    """Return where the transforms of a unit begin, in bytes: one for each index of other axes."""
    others = [axis for axis in range(1, array.ndim) if axis not in axes]
    strides = [array.strides[axis] for axis in others]
    places = np.ndindex(*(array.shape[axis] for axis in others))
    return [sum(map(operator.mul, place, strides)) for place in places]


def make_transform(p: FftParams) -> Callable[[str, np.ndarray, np.ndarray], None]:
    kind = p.shape, p.batch_axes, p.dtype, p.kind, p.norm

    def transform(name: str, x: np.ndarray, y: np.ndarray) -> None:
        source, target = pointer(x, "x"), pointer(y, "y")
        descriptor: Descriptor = _descriptors.kept.get_or_compute(
            (*kind, name, len(x), x is y),
            lambda: Descriptor(x, y, p.batch_axes, name.startswith("i"), p.factor(name)),
        )
        descriptor.run(source, target)

    return transform
