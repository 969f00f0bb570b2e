"""OpenCL through pyopencl, for one device: three in-order queues with profiling."""

from __future__ import annotations

import importlib
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

import numpy as np

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.on_host import on_host
from hetsched.devices.accelerator.runtime import Copy, DeviceFacts, Fault, Memory, translated
from hetsched.devices.base import Device, DeviceFault
from hetsched.paths import cache_dir

RESERVE_FRACTION = 0.05
"""Of the memory, for the runtime and other processes: OpenCL can't tell what is free."""
MEMORY_CODES = frozenset({-4, -6, -61})
"""No device memory, no host memory, a buffer larger than any may be."""
FATAL_CODES = frozenset({-5, -14, -34, -36, -9999})
"""Out of resources, a command behind a failed one, a context or queue that is lost, and NVIDIA's
illegal access."""


def open_device(info: DeviceInfo, config: DeviceConfig) -> Device:
    """Open the device that `probe` found, in its own process. Raises Unavailable."""
    os.environ.setdefault("POCL_CACHE_DIR", str(cache_dir() / "pocl"))
    with translated(info.name, lambda error: Fault.ABSENT):
        cl = importlib.import_module("pyopencl")
        warnings.simplefilter("ignore", cl.CompilerWarning)  # Intel's always says something
        platform, number = int(info.details["platform"]), int(info.details["number"])
        device = cl.get_platforms()[platform].get_devices()[number]
        runtime = OpenClRuntime(cl, device, config.engines)
    if info.link:
        return Accelerator(info, runtime, config.memory_bytes())
    return on_host(info, runtime)


class OpenClRuntime:
    """One device with its context. Its memory is what we allocate: OpenCL enforces no limit."""

    kernels = "opencl"
    xp: Any = None

    def __init__(self, cl: Any, device: Any, engines: int = 2) -> None:
        self.cl = cl
        self.arrays = importlib.import_module("pyopencl.array")
        self.context = cl.Context([device])
        self._device = device
        self._engines = engines
        self._queues: list[OpenClQueue] = []
        self._blocks: WeakSet[OpenClBlock] = WeakSet()
        self._own_queue = self.queue().queue
        """Of kernels on the host's memory."""

    @property
    def facts(self) -> DeviceFacts:
        return DeviceFacts(
            identity=self._device.name.strip(),
            reserve=int(RESERVE_FRACTION * self.memory().total),
            engines=self._engines,
            can_pin=False,
            version=self._device.version.strip(),
        )

    def memory(self) -> Memory:
        """Return the memory of which one block can be had."""
        total = min(self._device.global_mem_size, self._device.max_mem_alloc_size)
        return Memory(max(0, total - sum(block.nbytes for block in self._blocks)), total)

    def allocate(self, nbytes: int) -> OpenClBlock:
        if nbytes > self.memory().free:
            raise MemoryError(f"{nbytes} bytes, of which {self.memory().free} are free")
        block = OpenClBlock(self, nbytes)
        self._blocks.add(block)
        return block

    def trim(self) -> None:
        pass

    def pin(self, host: np.ndarray) -> None:
        raise NotImplementedError("OpenCL can't register host memory")

    def unpin(self, host: np.ndarray) -> None:
        pass

    def queue(self) -> OpenClQueue:
        self._queues.append(OpenClQueue(self))
        return self._queues[-1]

    def event(self) -> OpenClEvent:
        return OpenClEvent(self.cl)

    def synchronize(self) -> None:
        for queue in self._queues:
            queue.finish()

    def lend(self, host: np.ndarray) -> Any:
        """Nothing is copied where arrays begin at a page and end at a cache line; drivers copy
        others, and what the host has written is seen by a new buffer only."""
        flags = self.cl.mem_flags
        access = flags.READ_WRITE if host.flags.writeable else flags.READ_ONLY
        buffer = self.cl.Buffer(self.context, access | flags.USE_HOST_PTR, hostbuf=host)
        return self.arrays.Array(self._own_queue, host.shape, host.dtype, data=buffer)

    def take_back(self, written: Iterable[Any]) -> None:
        queue, read = self._own_queue, self.cl.map_flags.READ
        for array in written:
            buffer = array.base_data
            mapped, _ = self.cl.enqueue_map_buffer(
                queue, buffer, read, 0, (buffer.size,), np.uint8
            )
            mapped.base.release()
        queue.finish()

    def host_seconds(self) -> float:
        return time.monotonic()

    def classify(self, error: BaseException) -> Fault:
        code = getattr(error, "code", None)
        if isinstance(error, MemoryError) or code in MEMORY_CODES:
            return Fault.MEMORY
        return Fault.STICKY if code in FATAL_CODES else Fault.USAGE


class OpenClEvent:
    """A marker; a barrier that waits for it orders two queues."""

    def __init__(self, cl: Any) -> None:
        self._complete = cl.command_execution_status.COMPLETE
        self.mark: Any = None

    def is_done(self) -> bool:
        status = self.mark.command_execution_status
        if status < 0:
            raise DeviceFault(f"OpenCL status {status} in a queue")
        return bool(status == self._complete)

    def wait(self) -> None:
        self.mark.wait()

    def seconds_after(self, earlier: OpenClEvent) -> float:
        return float(self.mark.profile.end - earlier.mark.profile.end) * 1e-9


class OpenClQueue:
    """An in-order queue; it is flushed with each command, as AMD's begin nothing before.

    pyopencl's event of a copy keeps the host's memory, and waits for the copy when it is dropped:
    so events of copies are kept until these are over.
    """

    def __init__(self, runtime: OpenClRuntime) -> None:
        self._cl, self._arrays = runtime.cl, runtime.arrays
        properties = self._cl.command_queue_properties.PROFILING_ENABLE
        self.queue = self._cl.CommandQueue(runtime.context, properties=properties)
        self._copies: deque[Any] = deque()

    def copy_in(self, copies: Iterable[Copy], units: int) -> None:
        for block, offset, host in copies:
            self._copy(block.buffer, _bytes(host), dst_offset=offset)
        self.queue.flush()

    def copy_out(self, copies: Iterable[Copy], units: int) -> None:
        for block, offset, host in copies:
            self._copy(_bytes(host), block.buffer, src_offset=offset)
        self.queue.flush()

    def _copy(self, target: Any, source: Any, **offsets: int) -> None:
        copy = self._cl.enqueue_copy(self.queue, target, source, is_blocking=False, **offsets)
        self._copies.append(copy)
        complete = self._cl.command_execution_status.COMPLETE
        while self._copies and self._copies[0].command_execution_status == complete:
            self._copies.popleft()

    def clear(self, block: OpenClBlock, offset: int, nbytes: int) -> None:
        self._cl.enqueue_fill_buffer(self.queue, block.buffer, np.uint8(0), offset, nbytes)

    def array(self, block: OpenClBlock, offset: int, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array that carries this queue, and so do its views."""
        return self._arrays.Array(
            self.queue, shape, np.dtype(dtype), data=block.buffer, offset=offset
        )

    def launch(self, call: Callable[[], None], units: int) -> None:
        call()
        self.queue.flush()

    def record(self, event: OpenClEvent) -> None:
        event.mark = self._cl.enqueue_marker(self.queue)
        self.queue.flush()

    def wait(self, event: OpenClEvent) -> None:
        if event.mark is not None:
            self._cl.enqueue_barrier(self.queue, wait_for=[event.mark])

    def finish(self) -> None:
        self.queue.finish()
        self._copies.clear()


class OpenClBlock:
    def __init__(self, runtime: OpenClRuntime, nbytes: int) -> None:
        self.nbytes = nbytes
        flags = runtime.cl.mem_flags.READ_WRITE
        self.buffer = runtime.cl.Buffer(runtime.context, flags, max(1, nbytes))

    def pointer(self) -> Any:
        return self.buffer


def _bytes(host: np.ndarray) -> np.ndarray:
    return host.reshape(-1).view(np.uint8)
