"""FFT by MKL's DFTI interface, batched descriptors, through ctypes (which releases the GIL).

MKL contains a wrapper with FFTW's interface that replaces the real one in a pyFFTW imported later,
even if libmkl_rt is loaded with RTLD_LOCAL, because it loads its parts globally. So pyFFTW is
imported first. One thread per kernel (SEQUENTIAL): MKL's OpenMP leaves files in shared memory
when its process is killed.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hetsched.workload import Kernel, KernelContext
from hetsched_workloads.fft import pyfftw_cpu as _before_mkl  # noqa: F401
from hetsched_workloads.fft.batched import OwnPlans, SplitKernel, pointer
from hetsched_workloads.fft.call_sizes import call_size
from hetsched_workloads.fft.declaration import DTYPES, FftParams
from hetsched_workloads.installed import shared_library

# mkl_dfti.h
BACKWARD_SCALE, NUMBER_OF_TRANSFORMS, PLACEMENT = 5, 7, 11
INPUT_DISTANCE, OUTPUT_DISTANCE = 14, 15
FORWARD_SCALE, CONJUGATE_EVEN_STORAGE, INPUT_STRIDES, OUTPUT_STRIDES = 4, 10, 12, 13
COMPLEX, REAL, SINGLE, DOUBLE, COMPLEX_COMPLEX, NOT_INPLACE = 32, 33, 35, 36, 39, 44
SEQUENTIAL = 1

_descriptors = OwnPlans()


class DescriptorKey(NamedTuple):
    shape: tuple[int, ...]
    planes: int
    dtype: str
    in_place: bool


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
    """A committed DFTI descriptor for key.planes planes; forward unscaled, backward 1/n."""

    def __init__(self, key: DescriptorKey) -> None:
        rows, cols = key.shape
        distance = ctypes.c_long(rows * cols)
        settings = [(NUMBER_OF_TRANSFORMS, ctypes.c_long(key.planes)), (INPUT_DISTANCE, distance),
                    (OUTPUT_DISTANCE, distance),
                    (BACKWARD_SCALE, ctypes.c_double(1 / (rows * cols)))]  # fmt: skip
        if not key.in_place:
            settings.append((PLACEMENT, ctypes.c_int(NOT_INPLACE)))
        self._commit(COMPLEX, DTYPES[key.dtype].is_double, key.shape, settings)

    def _commit(
        self,
        domain: int,
        is_double: bool,
        shape: Sequence[int],
        settings: Sequence[tuple[int, Any]],
    ) -> None:
        self._mkl = library()
        self._handle = ctypes.c_void_p()
        lengths = (ctypes.c_long * len(shape))(*shape)
        self._call("CreateDescriptor", ctypes.byref(self._handle), DOUBLE if is_double else SINGLE,
                   domain, ctypes.c_long(len(shape)),
                   lengths if len(shape) > 1 else lengths[0])  # fmt: skip
        for name, value in settings:
            self._call("SetValue", self._handle, name, value)
        self._call("CommitDescriptor", self._handle)

    def __del__(self) -> None:
        if self._handle:
            self._mkl.DftiFreeDescriptor(ctypes.byref(self._handle))

    def run(self, source: int, target: int, backward: bool) -> None:
        """Transform planes from address `source` to `target` (equal if in place)."""
        name = "ComputeBackward" if backward else "ComputeForward"
        self._call(name, self._handle, ctypes.c_void_p(source), ctypes.c_void_p(target))

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._mkl, "Dfti" + name)(*arguments)
        if status:
            text = self._mkl.DftiErrorMessage(ctypes.c_long(status)).decode()
            raise RuntimeError(f"Dfti{name}: {text} ({status})")


class Transforms(Descriptor):
    """Transforms of the units of x into y along some axes, real ones where x or y are.

    They are in place if x is y.
    """

    def __init__(
        self, x: np.ndarray, y: np.ndarray, axes: Sequence[int], backward: bool, factor: float
    ) -> None:
        self._backward = backward
        is_real = x.dtype.kind == "f" or y.dtype.kind == "f"
        lengths = [max(x.shape[axis], y.shape[axis]) for axis in axes]
        strides = [
            (ctypes.c_long * (len(axes) + 1))(0, *(a.strides[axis] // a.itemsize for axis in axes))
            for a in (x, y)
        ]
        scale = BACKWARD_SCALE if backward else FORWARD_SCALE
        settings: list[tuple[int, Any]] = [
            (NUMBER_OF_TRANSFORMS, ctypes.c_long(len(x))),
            (INPUT_STRIDES, strides[0]),
            (OUTPUT_STRIDES, strides[1]),
            (INPUT_DISTANCE, ctypes.c_long(x.strides[0] // x.itemsize)),
            (OUTPUT_DISTANCE, ctypes.c_long(y.strides[0] // y.itemsize)),
            (scale, ctypes.c_double(factor)),
        ]
        if is_real:
            settings.append((CONJUGATE_EVEN_STORAGE, ctypes.c_int(COMPLEX_COMPLEX)))
        if pointer(x, "x") != pointer(y, "y"):
            settings.append((PLACEMENT, ctypes.c_int(NOT_INPLACE)))
        is_double = np.finfo(x.dtype).dtype == np.float64
        self._commit(REAL if is_real else COMPLEX, is_double, lengths, settings)

    def run_units(self, source: int, target: int) -> None:
        self.run(source, target, self._backward)


def make(p: FftParams, chunk: int, context: KernelContext) -> Kernel:
    """Return a kernel. Raises OSError without MKL, RuntimeError with MKL's message."""
    shape, is_inverse, is_roundtrip = p.shape, p.direction == "inverse", p.direction == "roundtrip"

    def descriptor(planes: int, in_place: bool) -> Descriptor:
        key = DescriptorKey(shape, planes, p.dtype, in_place)
        made: Descriptor = _descriptors.kept.get_or_compute(key, lambda: Descriptor(key))
        return made

    def transform(x: np.ndarray, y: np.ndarray) -> None:
        target = pointer(y, "y")
        descriptor(len(x), False).run(pointer(x, "x"), target, is_inverse)
        if is_roundtrip:
            descriptor(len(x), True).run(target, target, True)

    version = (shared_library("mkl", "libmkl_rt.so") or ("",))[0]
    largest = call_size(f"mkl {version}", p, chunk, context, lambda size: transform)
    for in_place in (False, True)[: 1 + is_roundtrip]:
        descriptor(largest, in_place)
    return SplitKernel(transform, largest)
