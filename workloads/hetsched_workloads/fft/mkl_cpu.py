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
import re
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

from hetsched.workload import Arrays, KernelContext
from hetsched_workloads.fft import pyfftw_cpu as _before_mkl  # noqa: F401
from hetsched_workloads.fft.batched import pieces, pointer, powers
from hetsched_workloads.fft.call_sizes import Transform, call_size
from hetsched_workloads.fft.declaration import FftParams
from hetsched_workloads.fft.inference import DTYPES
from hetsched_workloads.installed import shared_library
from hetsched_workloads.pool import Pool

# mkl_dfti.h
BACKWARD_SCALE, NUMBER_OF_TRANSFORMS, PLACEMENT = 5, 7, 11
INPUT_DISTANCE, OUTPUT_DISTANCE = 14, 15
COMPLEX, SINGLE, DOUBLE, NOT_INPLACE = 32, 35, 36, 44
SEQUENTIAL = 1


class DescriptorKey(NamedTuple):
    """Identifies a committed descriptor."""

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


def installed_version() -> str:
    """Return the version of the package that the library comes from."""
    return (shared_library("mkl", "libmkl_rt.so") or ("",))[0]


def loaded() -> dict[str, str]:
    """Return MKL's version string and the kernel libraries that it has loaded."""
    text = ctypes.create_string_buffer(256)
    library().MKL_Get_Version_String(text, ctypes.c_int(len(text)))
    maps = Path("/proc/self/maps").read_text()
    kernels = sorted(set(re.findall(r"libmkl_(avx\w*|def|mc3)\.so", maps)))
    return {"mkl": text.value.decode().strip(), "mkl_kernels": " ".join(kernels)}


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


_descriptors: Pool[Descriptor] = Pool()


class MklKernel:
    """Transforms up to `chunk` planes per call. For one thread at a time."""

    def __init__(self, p: FftParams, chunk: int, context: KernelContext) -> None:
        self._p = p
        self._plane_bytes = p.plane_bytes
        library = f"mkl {installed_version()}"
        self._largest = call_size(library, p, chunk, context, self._timed_call)
        self.units_per_call = self._largest
        lent: dict[Hashable, Descriptor] = {}

        def descriptor(size: int, in_place: bool) -> Descriptor:
            key = DescriptorKey(p.shape, size, p.dtype, in_place)
            lent[key] = _descriptors.take(key, lambda: Descriptor(key))
            return lent[key]

        sizes = powers(self._largest)
        self._first = {size: descriptor(size, False) for size in sizes}
        roundtrip = p.direction == "roundtrip"
        self._second = {size: descriptor(size, True) for size in sizes} if roundtrip else {}
        _descriptors.lend(self, lent)

    def _timed_call(self, size: int) -> Transform:
        descriptor = Descriptor(DescriptorKey(self._p.shape, size, self._p.dtype, False))
        inverse = self._p.direction == "inverse"
        return lambda x, y: descriptor.run(pointer(x, "x"), pointer(y, "y"), inverse)

    def __call__(self, inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        source, target = pointer(x, "x"), pointer(y, "y")
        plane = self._plane_bytes
        inverse = self._p.direction == "inverse"
        for first, size in pieces(len(x), self._largest):
            to = target + first * plane
            self._first[size].run(source + first * plane, to, inverse)
            if self._second:
                self._second[size].run(to, to, True)


def make(p: FftParams, chunk: int, context: KernelContext) -> MklKernel:
    """Return a kernel. Raises OSError without MKL, RuntimeError with MKL's message."""
    return MklKernel(p, chunk, context)
