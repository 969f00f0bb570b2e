"""Classifies the statuses of CUDA, its libraries and NVML.

Imports no vendor library: errors are recognised by the names of their classes and their numbers.

A *sticky* error has destroyed the context: every later call in this process fails or, worse,
returns garbage. The process must be restarted.
"""

from __future__ import annotations

from typing import NamedTuple

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


class _Statuses(NamedTuple):
    """Of one library: of missing memory, and of a lost device or context."""

    memory: frozenset[int] = frozenset()
    fatal: frozenset[int] = frozenset()
    attribute: str = "status"
    plan: int | None = None


_CUDA = _Statuses(frozenset({OUT_OF_MEMORY}), STICKY_STATUSES | LOST_STATUSES)
_BY_CLASS = {
    "CudaError": _CUDA,
    "CUDARuntimeError": _CUDA,
    "CUDADriverError": _CUDA,
    "CuFFTError": _Statuses(frozenset({2}), frozenset({6}), "result", CUFFT_INTERNAL_ERROR),
    "CUBLASError": _Statuses(frozenset({3}), frozenset({11, 13, 14})),
    "CuSparseError": _Statuses(frozenset({2, 11}), frozenset({5, 6, 7})),
    "CUSOLVERError": _Statuses(frozenset({2}), frozenset({5, 6, 7})),
    "CURANDError": _Statuses(frozenset({102}), frozenset({201, 202, 203, 999})),
    "NVRTCError": _Statuses(frozenset({1})),
}
"""Fatal are errors of mapping and execution, and internal ones; losing the GPU during a job is as
final as a sticky error of CUDA."""


def classify(error: BaseException, opening: bool = False) -> Fault:
    """Classify `error`; `opening`: no call has succeeded in this process yet."""
    names = [kind.__name__ for kind in type(error).__mro__]
    known = next((_BY_CLASS[name] for name in names if name in _BY_CLASS), _Statuses())
    number = getattr(error, known.attribute, None)
    if isinstance(error, MemoryError) or number in known.memory:
        return Fault.MEMORY
    if opening and (known != _Statuses() or isinstance(error, ImportError)):
        return Fault.ABSENT
    if number is not None and number == known.plan:
        return Fault.PLAN
    return Fault.STICKY if number in known.fatal else Fault.USAGE
