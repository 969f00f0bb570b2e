"""MKL's native interface, DFTI: one descriptor for the whole batch, all threads, out of place.

Independent of the workload's variant, so that they can't share an error. The values are
those of mkl_dfti.h.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.fft_case import arrays, worst

SINGLE, DOUBLE, COMPLEX = 35, 36, 32
TRANSFORMS, PLACEMENT, INPUT_DISTANCE, OUTPUT_DISTANCE = 7, 11, 14, 15
NOT_IN_PLACE = 44


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    mkl = library()
    x, y = arrays(case)
    count, rows, cols = case["shape"]
    handle = ctypes.c_void_p()
    lengths = (ctypes.c_long * 2)(rows, cols)
    precision = SINGLE if case["dtype"] == "complex64" else DOUBLE
    ok(
        mkl.DftiCreateDescriptor(
            ctypes.byref(handle), precision, COMPLEX, ctypes.c_long(2), lengths
        )
    )
    settings = [(TRANSFORMS, count), (PLACEMENT, NOT_IN_PLACE)]
    settings += [(INPUT_DISTANCE, rows * cols), (OUTPUT_DISTANCE, rows * cols)]
    for key, value in settings:
        ok(mkl.DftiSetValue(handle, key, ctypes.c_long(value)))
    ok(mkl.DftiCommitDescriptor(handle))
    source, target = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data)

    def run() -> None:
        ok(mkl.DftiComputeForward(handle, source, target))

    return run, lambda: worst(x, y)


def library() -> ctypes.CDLL:
    """Load libmkl_rt as installed by the `mkl` wheel."""
    found = sorted(Path(sys.prefix, "lib").glob("libmkl_rt.so*"))
    if not found:
        raise ImportError(f"no libmkl_rt in {sys.prefix}/lib")
    return ctypes.CDLL(str(found[-1]))


def ok(status: int) -> None:
    if status:
        raise RuntimeError(f"DFTI status {status}")
