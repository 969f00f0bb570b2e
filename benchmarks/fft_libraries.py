"""The FFT libraries with their best settings, and as a user calls them from threads of his own.

Each function plans for arrays x and y of planes, and returns ``transform(x, out)``; without `out`
it returns a new array.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

Transform = Callable[[np.ndarray, np.ndarray | None], np.ndarray]


def ducc0(x: np.ndarray, y: np.ndarray, threads: int) -> Transform:
    import ducc0

    return lambda x, out: ducc0.fft.c2c(x, axes=(1, 2), out=out, nthreads=threads)


def ducc0_by_plane(x: np.ndarray, y: np.ndarray, threads: int) -> Transform:
    """A plane per call, on a thread per core."""
    import ducc0

    pool = ThreadPoolExecutor(threads)

    def transform(x: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        y = np.empty_like(x) if out is None else out
        list(pool.map(lambda plane, into: ducc0.fft.c2c(plane, out=into, nthreads=1), x, y))
        return y

    return transform


def scipy(x: np.ndarray, y: np.ndarray, threads: int) -> Transform:
    """Has no output argument."""
    import scipy.fft

    return lambda x, out: scipy.fft.fft2(x, axes=(1, 2), workers=threads)


def mkl_fft(x: np.ndarray, y: np.ndarray, threads: int) -> Transform:
    import mkl_fft

    return lambda x, out: mkl_fft.fftn(x, axes=(1, 2), out=out)


def pyfftw(x: np.ndarray, y: np.ndarray, threads: int) -> Transform:
    """The whole batch in one plan."""
    plan = _fftw_plan(x, y, (1, 2), threads)
    return lambda x, out: plan(x, np.empty_like(x) if out is None else out)


def pyfftw_by_plane(x: np.ndarray, y: np.ndarray, threads: int) -> Transform:
    """A plane per call, on a thread per core with a plan of its own."""
    plans = [_fftw_plan(x[0], y[0], (0, 1), 1) for _ in range(threads)]
    pool = ThreadPoolExecutor(threads)

    def transform(x: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        y = np.empty_like(x) if out is None else out

        def planes(plan: Any, first: int) -> None:
            for i in range(first, len(x), threads):
                plan(x[i], y[i])

        list(pool.map(planes, plans, range(threads)))
        return y

    return transform


def _fftw_plan(x: np.ndarray, y: np.ndarray, axes: tuple[int, int], threads: int) -> Any:
    """Return the best of three plans: equal ones differ by up to 2 times."""
    import pyfftw

    values = x.copy()  # MEASURE overwrites its arrays
    flags = ["FFTW_MEASURE"] + ["FFTW_UNALIGNED"] * (x[0].nbytes % 16 > 0)
    plans = []
    for _ in range(3):
        pyfftw.forget_wisdom()
        plans.append(pyfftw.FFTW(x, y, axes=axes, flags=flags, threads=threads))
    x[...] = values

    def seconds(plan: Any) -> float:
        start = time.perf_counter()
        plan.execute()
        plan.execute()
        return time.perf_counter() - start

    return min(plans, key=seconds)


def dfti(x: np.ndarray, y: np.ndarray, threads: int) -> Transform:
    """MKL's own interface, one descriptor for the batch. The numbers are those of mkl_dfti.h."""
    found = sorted(Path(sys.prefix, "lib").glob("libmkl_rt.so*"))
    if not found:
        raise ImportError(f"no libmkl_rt in {sys.prefix}/lib")
    mkl = ctypes.CDLL(str(found[-1]))

    def ok(status: int) -> None:
        if status:
            raise RuntimeError(f"DFTI status {status}")

    count, *sides = x.shape
    handle, lengths = ctypes.c_void_p(), (ctypes.c_long * 2)(*sides)
    precision, is_complex, rank = 35 if x.dtype == "complex64" else 36, 32, ctypes.c_long(2)
    ok(mkl.DftiCreateDescriptor(ctypes.byref(handle), precision, is_complex, rank, lengths))
    distance = sides[0] * sides[1]
    transforms, not_in_place, input_distance, output_distance = 7, (11, 44), 14, 15
    settings = ((transforms, count), not_in_place)
    for key, value in (*settings, (input_distance, distance), (output_distance, distance)):
        ok(mkl.DftiSetValue(handle, key, ctypes.c_long(value)))
    ok(mkl.DftiCommitDescriptor(handle))

    def transform(x: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        y = np.empty_like(x) if out is None else out
        source, target = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)
        ok(mkl.DftiComputeForward(handle, source, target))
        return y

    return transform


LIBRARIES: dict[str, Callable[[np.ndarray, np.ndarray, int], Transform]] = {
    "ducc0": ducc0,
    "ducc0 by plane": ducc0_by_plane,
    "pyfftw": pyfftw,
    "pyfftw by plane": pyfftw_by_plane,
    "dfti": dfti,
    "mkl_fft": mkl_fft,
    "scipy": scipy,
}
