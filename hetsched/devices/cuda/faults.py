"""Classifies the statuses of CUDA, its libraries and NVML.

Imports no vendor library: errors are recognised by the names of their classes and their numbers.

A *sticky* error has destroyed the context: every later call in this process fails or, worse,
returns garbage. The process must be restarted.
"""

from __future__ import annotations

from hetsched.devices.accelerator.runtime import Fault

NOT_READY = 600
OUT_OF_MEMORY = 2

LOST_STATUSES = frozenset({3, 35, 46, 100, 101, 802, 803, 804, 999})
"""No driver or device, busy in exclusive mode, driver and library mismatch, unknown."""
STICKY_STATUSES = frozenset(
    {4, 201, 214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 806, 810, 911}
)
"""4 is cudaErrorCudartUnloading; 201 an invalid context; 806 and 810 are faults of MPS."""
CUFFT_INTERNAL_ERROR = 5
"""The context is suspect; while plans are made, it may also mean that memory is low."""
NVML_ABSENT = frozenset({9, 12, 18})
"""Driver not loaded, library not found, library and driver of different versions."""
NVML_LOST = frozenset({15, 16})
"""The GPU fell off the bus, or needs a reset, which hetsched never performs."""


class CudaError(RuntimeError):
    """A status that a call returned instead of raising."""

    def __init__(self, status: int, operation: str = "") -> None:
        super().__init__(f"CUDA status {status}{f' in {operation}' if operation else ''}")
        self.status = status


_STATUS_ATTRIBUTES = {
    "CudaError": ("cuda", "status"),
    "CUDARuntimeError": ("cuda", "status"),
    "CUDADriverError": ("cuda", "status"),
    "CuFFTError": ("cufft", "result"),
    "CUBLASError": ("cublas", "status"),
    "CuSparseError": ("cusparse", "status"),
    "CUSOLVERError": ("cusolver", "status"),
    "CURANDError": ("curand", "status"),
    "NVRTCError": ("nvrtc", "status"),
}
_MEMORY_STATUSES = {
    "cuda": {OUT_OF_MEMORY},
    "cufft": {2},
    "cublas": {3},
    "cusparse": {2, 11},
    "cusolver": {2},
    "curand": {102},
    "nvrtc": {1},
}
_FATAL_STATUSES = {
    "cuda": STICKY_STATUSES | LOST_STATUSES,
    "cufft": {6},
    "cublas": {11, 13, 14},
    "cusparse": {5, 6, 7},
    "cusolver": {5, 6, 7},
    "curand": {201, 202, 203, 999},
}
"""Errors of mapping and execution, and internal ones; losing the GPU during a job is as final as
a sticky error of CUDA."""


def status_of(error: BaseException) -> tuple[str, int]:
    """Return the library and number of `error`; ("", 0) for one without a number."""
    for kind in type(error).__mro__:
        library, attribute = _STATUS_ATTRIBUTES.get(kind.__name__, ("", ""))
        number = getattr(error, attribute, None) if attribute else None
        if isinstance(number, int):
            return library, number
    return "", 0


def classify(error: BaseException, opening: bool = False) -> Fault:
    """Classify `error`; `opening`: no call has succeeded in this process yet."""
    library, number = status_of(error)
    if isinstance(error, MemoryError) or number in _MEMORY_STATUSES.get(library, ()):
        return Fault.MEMORY
    if opening and (library or isinstance(error, ImportError)):
        return Fault.ABSENT
    if (library, number) == ("cufft", CUFFT_INTERNAL_ERROR):
        return Fault.PLAN
    return Fault.STICKY if number in _FATAL_STATUSES.get(library, ()) else Fault.USAGE
