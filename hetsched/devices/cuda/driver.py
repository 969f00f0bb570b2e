"""Calls of the CUDA driver library that CuPy lacks, through ctypes.

CuPy contains the CUDA runtime, so that the runtime's own calls can't be reached from outside. The
runtime works in the primary context, whose flags the driver sets.
"""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libcuda.so.1"
BLOCKING_SYNC = 4
"""CU_CTX_SCHED_BLOCKING_SYNC, the same as cudaDeviceScheduleBlockingSync."""


def sleep_while_waiting(library: Any = None) -> bool:
    """Have waits for device 0, such as deviceSynchronize, sleep instead of spin.

    To be called before the context exists; other flags are left at their default. Return whether
    that worked; without a driver it doesn't. `library` replaces libcuda in tests.
    """
    try:
        driver = ctypes.CDLL(LIBRARY) if library is None else library
        device = ctypes.c_int()
        if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
            return False
        # Version 2 also accepts a context that exists; CUDA 10 and earlier have only version 1.
        set_flags = getattr(driver, "cuDevicePrimaryCtxSetFlags_v2", None)
        set_flags = set_flags or driver.cuDevicePrimaryCtxSetFlags
        return not set_flags(device, BLOCKING_SYNC)
    except (OSError, AttributeError):
        return False
