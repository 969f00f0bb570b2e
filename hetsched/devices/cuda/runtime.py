"""The interface between the CUDA device and CUDA, and its implementation with CuPy.

Thin on purpose: `fake.runtime.FakeRuntime` replaces it where there is no GPU, so that the device's
code (waits, slots, pinning, faults) runs everywhere. Host memory is passed by address; the caller
keeps it alive until the copy has ended.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from hetsched.devices.cuda.driver import sleep_while_waiting
from hetsched.devices.cuda.faults import translated

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


@dataclass(frozen=True)
class DeviceFacts:
    """What the runtime reports. `free` (besides the context) and `total` in bytes."""

    identity: str
    free: int
    total: int
    engines: int
    watchdog: bool = False
    register: bool = True
    version: str = ""


@dataclass(frozen=True)
class Memory:
    """Of the device, in bytes. `reusable`: kept unused by the allocator of temporaries."""

    free: int
    total: int
    reusable: int = 0


class Event(Protocol):
    """A mark in a stream. Waiting for it sleeps: spinning would take a core from the CPU."""

    def status(self) -> int:
        """Return 0 if passed, 600 if not yet, else the fault; a bool would hide faults."""

    def block(self) -> None: ...

    def milliseconds_after(self, earlier: Any) -> float: ...


class Stream(Protocol):
    """A queue of operations that run in order; only `wait` orders two streams."""

    def copy(self, target: int, source: int, nbytes: int, kind: int) -> None: ...

    def clear(self, address: int, nbytes: int) -> None:
        """Fill device memory with zeros."""

    def launch(self, call: Callable[[], None]) -> None:
        """Run `call`, whose kernels go into this stream."""

    def record(self, event: Any) -> None: ...

    def wait(self, event: Any) -> None: ...


class Block(Protocol):
    """Raw device memory, freed with its last reference."""

    address: int
    nbytes: int

    def array(self, offset: int, shape: tuple[int, ...], dtype: str) -> Any: ...

    def pointer(self, offset: int) -> Any:
        """Return the pointer that `KernelContext.allocate` passes to a vendor library."""


class Runtime(Protocol):
    """One device with its context. `kernels`: the kind of variants that run on its arrays."""

    xp: Any
    kernels: str

    @property
    def facts(self) -> DeviceFacts: ...

    def memory(self) -> Memory: ...

    def allocate(self, nbytes: int) -> Block: ...

    def trim(self) -> None:
        """Free the memory that the allocator of temporaries keeps."""

    def pin(self, address: int, nbytes: int, read_only: bool) -> None: ...

    def unpin(self, address: int) -> None: ...

    def stream(self) -> Stream: ...

    def event(self) -> Event: ...

    def synchronize(self) -> None:
        """Wait until the device is idle; never between the chunks of a job."""


class _CupyEvent:
    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.event = cupy.cuda.Event(block=True)

    def status(self) -> int:
        """Return the status, which doesn't remain the thread's last error.

        Thrust and CUB would report NOT_READY as the error of their next kernel. CuPy doesn't
        export cudaGetLastError, which resets it; `check_status` calls it before it raises.
        """
        calls = self._cupy.cuda.runtime
        status = int(calls.eventQuery(self.event.ptr))
        if status:
            with contextlib.suppress(calls.CUDARuntimeError):
                calls.check_status(status)
        return status

    def block(self) -> None:
        self.event.synchronize()

    def milliseconds_after(self, earlier: _CupyEvent) -> float:
        return float(self._cupy.cuda.get_elapsed_time(earlier.event, self.event))


class _CupyStream:
    def __init__(self, cupy: Any) -> None:
        self._copy = cupy.cuda.runtime.memcpyAsync
        self._set = cupy.cuda.runtime.memsetAsync
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self._copy(target, source, nbytes, kind, self._stream.ptr)

    def clear(self, address: int, nbytes: int) -> None:
        self._set(address, 0, nbytes, self._stream.ptr)

    def launch(self, call: Callable[[], None]) -> None:
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

    def array(self, offset: int, shape: tuple[int, ...], dtype: str) -> Any:
        return self._cupy.ndarray(shape, dtype, memptr=self.pointer(offset))

    def pointer(self, offset: int) -> Any:
        return self._cupy.cuda.MemoryPointer(self.memory, offset)


class CupyRuntime:
    """CUDA through CuPy: device 0 of those visible to this process."""

    kernels = "cuda"

    def __init__(self, cupy: Any) -> None:
        self.xp = cupy
        self._calls = cupy.cuda.runtime
        self._pool: Any = None

    def warm_up(self) -> None:
        """Create the context and the cuBLAS handle, so that `facts` accounts for their memory."""
        self._calls.setDevice(0)
        self._pool = self.xp.cuda.MemoryPool()
        self.xp.cuda.set_allocator(self._pool.malloc)
        self.xp.fft.config.get_plan_cache().set_size(0)  # not safe with several streams
        self.xp.cuda.device.get_cublas_handle()
        self.synchronize()

    @property
    def facts(self) -> DeviceFacts:
        free, total = self._calls.memGetInfo()
        name = self._calls.getDeviceProperties(0)["name"]
        return DeviceFacts(
            identity=name.decode() if isinstance(name, bytes) else str(name),
            free=int(free),
            total=int(total),
            engines=min(2, self._attribute(ASYNC_ENGINES)),
            watchdog=bool(self._attribute(WATCHDOG)),
            register=bool(self._attribute(REGISTER_SUPPORTED)),
            version=str(self._calls.runtimeGetVersion()),
        )

    def memory(self) -> Memory:
        free, total = self._calls.memGetInfo()
        return Memory(int(free), int(total), int(self._pool.free_bytes()))

    def allocate(self, nbytes: int) -> Block:
        return _CupyBlock(self.xp, nbytes)

    def trim(self) -> None:
        self._pool.free_all_blocks()

    def pin(self, address: int, nbytes: int, read_only: bool) -> None:
        self._calls.hostRegister(address, nbytes, PORTABLE | (READ_ONLY if read_only else 0))

    def unpin(self, address: int) -> None:
        self._calls.hostUnregister(address)

    def stream(self) -> Stream:
        return _CupyStream(self.xp)

    def event(self) -> Event:
        return _CupyEvent(self.xp)

    def synchronize(self) -> None:
        self._calls.deviceSynchronize()

    def _attribute(self, number: int) -> int:
        return int(self._calls.deviceGetAttribute(number, 0))


def open_cupy(name: str, visible: str, cache: str) -> CupyRuntime:
    """Import CuPy and create the context of the GPU called `name` in messages.

    `visible`: what CUDA_VISIBLE_DEVICES calls it. Called once in the GPU's own process, before
    anything imports CuPy.

    Raises
    ------
    Unavailable
        No CuPy, driver or device, or the device is busy.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = visible
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUPY_TF32"] = "0"  # ten bits of mantissa would fail every verification
    if cache:
        os.environ.setdefault("CUPY_CACHE_DIR", f"{cache}/cupy")
        os.environ.setdefault("CUDA_CACHE_PATH", f"{cache}/cuda")
    with translated(name, opening=True):
        sleep_while_waiting()
        cupy = importlib.import_module("cupy")
        cupy.cuda.runtime.getDeviceCount()  # raises where Stream() would only print warnings
        runtime = CupyRuntime(cupy)
        runtime.warm_up()
    return runtime
