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
from typing import NamedTuple

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
COMPLEX, SINGLE, DOUBLE, NOT_INPLACE = 32, 35, 36, 44
SEQUENTIAL = 1

_descriptors = OwnPlans()


class DescriptorKey(NamedTuple):
    shape: tuple[int, int]
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
        self._mkl = library()
        self._handle = ctypes.c_void_p()
        rows, cols = key.shape
        lengths = (ctypes.c_long * 2)(rows, cols)
        precision = DOUBLE if DTYPES[key.dtype].is_double else SINGLE
        self._call("CreateDescriptor", ctypes.byref(self._handle), precision, COMPLEX,
                   ctypes.c_long(2), lengths)  # fmt: skip
        distance = ctypes.c_long(rows * cols)
        settings = [(NUMBER_OF_TRANSFORMS, ctypes.c_long(key.planes)), (INPUT_DISTANCE, distance),
                    (OUTPUT_DISTANCE, distance),
                    (BACKWARD_SCALE, ctypes.c_double(1 / (rows * cols)))]  # fmt: skip
        if not key.in_place:
            settings.append((PLACEMENT, ctypes.c_int(NOT_INPLACE)))
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
