"""CUDA through CuPy, for one NVIDIA GPU."""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.runtime import Copy, DeviceFacts, Fault, Memory, translated
from hetsched.devices.cuda.probe import reserve
from hetsched.paths import cache_dir

TO_DEVICE = 1
TO_HOST = 2
"""cudaMemcpyKind."""
PORTABLE = 1
READ_ONLY = 8
"""Flags of cudaHostRegister, which CuPy doesn't export."""
ASYNC_ENGINES = 40
REGISTER_SUPPORTED = 99
WATCHDOG = 17
"""cudaDeviceAttr: asyncEngineCount, hostRegisterSupported, kernelExecTimeout."""


def open_device(info: DeviceInfo, config: DeviceConfig) -> Accelerator:
    """Open the GPU that `probe` found. Raises Unavailable."""
    runtime = open_cupy(info, str(cache_dir()))
    return Accelerator(info, runtime, config.memory_bytes())


BLOCKING_SYNC = 4
"""CU_CTX_SCHED_BLOCKING_SYNC, the same as cudaDeviceScheduleBlockingSync."""


class _CupyEvent:
    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.event = cupy.cuda.Event(block=True)

    def is_done(self) -> bool:
        """Return whether it has passed, and leave no status as the thread's last error.

        `Event.done` would hide faults. Thrust and CUB would report NOT_READY as the error of their
        next kernel. CuPy doesn't export cudaGetLastError, which resets it; `check_status` calls it
        before it raises.
        """
        calls = self._cupy.cuda.runtime
        try:
            calls.check_status(calls.eventQuery(self.event.ptr))
        except calls.CUDARuntimeError as error:
            if error.status != NOT_READY:
                raise
            return False
        return True

    def wait(self) -> None:
        if not self.is_done():
            self.event.synchronize()

    def seconds_after(self, earlier: _CupyEvent) -> float:
        return float(self._cupy.cuda.get_elapsed_time(earlier.event, self.event)) * 1e-3


class _CupyQueue:
    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._copy = cupy.cuda.runtime.memcpyAsync
        self._set = cupy.cuda.runtime.memsetAsync
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def copy_in(self, copies: Iterable[Copy], units: int) -> None:
        for block, offset, host in copies:
            target, source = block.address + offset, host.ctypes.data
            self._copy(target, source, host.nbytes, TO_DEVICE, self._stream.ptr)

    def copy_out(self, copies: Iterable[Copy], units: int) -> None:
        for block, offset, host in copies:
            target, source = host.ctypes.data, block.address + offset
            self._copy(target, source, host.nbytes, TO_HOST, self._stream.ptr)

    def clear(self, block: _CupyBlock, offset: int, nbytes: int) -> None:
        self._set(block.address + offset, 0, nbytes, self._stream.ptr)

    def array(self, block: _CupyBlock, offset: int, shape: tuple[int, ...], dtype: str) -> Any:
        pointer = self._cupy.cuda.MemoryPointer(block.memory, offset)
        return self._cupy.ndarray(shape, dtype, memptr=pointer)

    def launch(self, call: Callable[[], None], units: int) -> None:
        with self._stream:
            call()

    def record(self, event: _CupyEvent) -> None:
        event.event.record(self._stream)

    def wait(self, event: _CupyEvent) -> None:
        self._stream.wait_event(event.event)


class _CupyBlock:
    """One cudaMalloc, not from CuPy's pool, which rounds sizes up and keeps memory."""

    def __init__(self, cupy: Any, nbytes: int) -> None:
        self._cupy = cupy
        self.memory = cupy.cuda.Memory(nbytes)
        self.address = int(self.memory.ptr)
        self.nbytes = nbytes

    def pointer(self) -> Any:
        return self._cupy.cuda.MemoryPointer(self.memory, 0)


class CupyRuntime:
    """CUDA through CuPy: device `number` of those visible to this process. Used by one thread.

    It creates the context and the cuBLAS handle, so that `facts` accounts for their memory.
    """

    kernels = "cuda"

    def __init__(self, cupy: Any, has_display: bool = False, number: int = 0) -> None:
        self.xp = cupy
        self._number = number
        self._has_display = has_display
        self._calls = cupy.cuda.runtime
        self._calls.setDevice(number)
        self._pool = cupy.cuda.MemoryPool()
        self._allocator = cupy.cuda.using_allocator(self._pool.malloc)  # in this thread
        self._allocator.__enter__()
        cupy.fft.config.get_plan_cache().set_size(0)  # not safe with several streams
        cupy.cuda.device.get_cublas_handle()
        self.synchronize()

    @property
    def facts(self) -> DeviceFacts:
        _, total = self._calls.memGetInfo()
        name = self._calls.getDeviceProperties(self._number)["name"]
        has_display = self._has_display or bool(self._attribute(WATCHDOG))
        return DeviceFacts(
            identity=name.decode() if isinstance(name, bytes) else str(name),
            reserve=reserve(int(total), has_display),
            engines=min(2, self._attribute(ASYNC_ENGINES)),
            can_pin=bool(self._attribute(REGISTER_SUPPORTED)),
            version=str(self._calls.runtimeGetVersion()),
        )

    def memory(self) -> Memory:
        free, total = self._calls.memGetInfo()
        return Memory(int(free), int(total), int(self._pool.free_bytes()))

    def allocate(self, nbytes: int) -> _CupyBlock:
        return _CupyBlock(self.xp, nbytes)

    def trim(self) -> None:
        self._pool.free_all_blocks()

    def pin(self, host: np.ndarray) -> None:
        flags = PORTABLE if host.flags.writeable else PORTABLE | READ_ONLY
        self._calls.hostRegister(host.ctypes.data, host.nbytes, flags)

    def unpin(self, host: np.ndarray) -> None:
        self._calls.hostUnregister(host.ctypes.data)

    def queue(self) -> _CupyQueue:
        return _CupyQueue(self.xp)

    def event(self) -> _CupyEvent:
        return _CupyEvent(self.xp)

    def synchronize(self) -> None:
        self._calls.deviceSynchronize()

    def host_seconds(self) -> float:
        return time.monotonic()

    def classify(self, error: BaseException) -> Fault:
        return classify(error)

    def _attribute(self, number: int) -> int:
        return int(self._calls.deviceGetAttribute(number, self._number))


def sleep_while_waiting(library: Any = None) -> bool:
    """Have waits for device 0, such as deviceSynchronize, sleep instead of spin.

    CuPy contains the CUDA runtime, whose own calls can't be reached from outside. It works in the
    primary context, whose flags the driver sets.

    To be called before the context exists; other flags are left at their default. Return whether
    that worked; without a driver it doesn't. `library` replaces libcuda in tests.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1") if library is None else library
        device = ctypes.c_int()
        if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
            return False
        # Version 2 also accepts a context that exists.
        return not driver.cuDevicePrimaryCtxSetFlags_v2(device, BLOCKING_SYNC)
    except (OSError, AttributeError):
        return False


def open_cupy(info: DeviceInfo, cache: str) -> CupyRuntime:
    """Import CuPy and create the context of a GPU.

    On the main thread of the GPU's own process, before anything imports CuPy, or on another one:
    then the process is the caller's, whose settings stay as they are.
    """
    is_own = threading.current_thread() is threading.main_thread()
    if is_own:
        os.environ["CUDA_VISIBLE_DEVICES"] = info.details["visible"]
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        os.environ["CUPY_TF32"] = "0"  # ten bits of mantissa would fail every verification
    if cache and is_own:
        os.environ.setdefault("CUPY_CACHE_DIR", f"{cache}/cupy")
        os.environ.setdefault("CUDA_CACHE_PATH", f"{cache}/cuda")
    with translated(info.name, lambda error: Fault.ABSENT):
        if is_own:
            sleep_while_waiting()
        cupy = importlib.import_module("cupy")
        calls = cupy.cuda.runtime
        calls.getDeviceCount()  # raises where Stream() would only print warnings
        number = 0 if is_own else int(calls.deviceGetByPCIBusId(info.details["pci"]))
        return CupyRuntime(cupy, info.details.get("display") == "active", number)


# ---- statuses of CUDA and its libraries, whose errors are known by class and number

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


class _Statuses(NamedTuple):
    """Of one library: of missing memory, and of a lost device or context."""

    memory: frozenset[int] = frozenset()
    fatal: frozenset[int] = frozenset()
    attribute: str = "status"
    plan: int | None = None


_CUDA = _Statuses(frozenset({OUT_OF_MEMORY}), STICKY_STATUSES | LOST_STATUSES)
_BY_CLASS = {
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


def classify(error: BaseException) -> Fault:
    names = [kind.__name__ for kind in type(error).__mro__]
    known = next((_BY_CLASS[name] for name in names if name in _BY_CLASS), _Statuses())
    number = getattr(error, known.attribute, None)
    if isinstance(error, MemoryError) or number in known.memory:
        return Fault.MEMORY
    if number is not None and number == known.plan:
        return Fault.PLAN
    return Fault.STICKY if number in known.fatal else Fault.USAGE
