"""A fake CUDA runtime, for testing the CUDA device without a GPU.

Device memory is host memory. Streams defer their operations until the host waits, and then run in
a seeded random order that respects only what CUDA guarantees: order within a stream, and waits for
events. While an operation is in progress, its output is poisoned. So for most seeds a missing wait
corrupts data, as it might on a GPU.

A timeline on a virtual clock tells which operations a GPU would overlap. One copy engine begins
copies in the order in which they were issued, whatever their stream.

Statuses are CUDA's. Kernels are NumPy, by the CPU variants.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hetsched.devices.cuda.fake.streams import POISON, FakeEvent, FakeStream, TimedOperation
from hetsched.devices.cuda.faults import OUT_OF_MEMORY, STICKY_STATUSES, CudaError
from hetsched.devices.cuda.runtime import DeviceFacts, Memory

ALIGNMENT = 512
BASE_ADDRESS = 1 << 56
"""Device addresses start beyond all host addresses."""
MAX_BURST = 8
"""Largest number of operations that a stream runs in a row. Arbitrary."""


@dataclass(frozen=True)
class FakePointer:
    """What libraries receive; the block lives as long as it does."""

    block: FakeBlock
    nbytes: int


class FakeBlock:
    """Device memory, filled with poison."""

    def __init__(self, runtime: FakeRuntime, address: int, nbytes: int) -> None:
        self._runtime = runtime
        self.address = address
        self.nbytes = nbytes
        self.memory = np.full(nbytes, POISON, np.uint8)
        runtime.blocks[address] = self.memory

    def __del__(self) -> None:
        self._runtime.blocks.pop(self.address, None)

    def array(self, offset: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self.memory, dtype, count, offset).reshape(shape)

    def pointer(self, offset: int) -> FakePointer:
        return FakePointer(self, self.nbytes - offset)


class FakeRuntime:
    """A fake GPU.

    Parameters
    ----------
    memory : int, bytes
    seed : int
        Seed of the order in which streams run.
    ignores_waits : set of int
        Streams, in order of creation, that ignore all waits.
    faults : mapping
        Index of an operation (copies and launches, from 0) -> status that it fails with. After a
        sticky status all later calls fail too.
    pinnable : int, bytes
        Largest number of bytes registered in one call; more fails with status 2.
    absent : int
        Status with which opening it fails: 35 without a driver, 100 without a device.
    """

    kernels = "cpu"

    def __init__(
        self,
        memory: int = 1 << 30,
        seed: int = 0,
        ignores_waits: frozenset[int] = frozenset(),
        faults: dict[int, int] | None = None,
        pinnable: int = 1 << 40,
        engines: int = 2,
        absent: int = 0,
    ) -> None:
        self.xp = np
        self.memory_bytes = memory
        self.used_by_others = 0
        """Bytes that other processes use."""
        self.blocks: dict[int, np.ndarray] = {}
        self.pins: dict[int, int] = {}
        self.sticky = 0
        self.operations = 0
        self.pageable = 0
        """Copies that were synchronous: the host waited for them."""
        self.peak_bytes = 0
        """The most device memory allocated at once."""
        self.timeline: list[TimedOperation] = []
        self.host_time = 0.0
        """Of the virtual clock: when the host issues its next operation."""
        self.copy_rate = 1e9
        """Bytes per second of the virtual clock, in each direction."""
        self.kernel_seconds = 1e-3
        """Of any kernel, on the virtual clock."""
        self.kernels_block = False
        """The host waits for each kernel, as for one that returns partial results to it."""
        self._random = random.Random(seed)
        self._ignores_waits = ignores_waits
        self._faults = faults or {}
        self._pinnable = pinnable
        self._engines = engines
        self._absent = absent
        self._copies: deque[object] = deque()
        """Copies that one engine for both directions hasn't begun."""
        self._engine_end = 0.0
        self._streams: list[FakeStream] = []
        self._burst: tuple[FakeStream | None, int] = (None, 0)
        """The running stream, and the steps that it may still take before the next draw."""

    @property
    def facts(self) -> DeviceFacts:
        if self._absent:
            raise CudaError(self._absent, "getDeviceCount")
        memory = self.memory()
        return DeviceFacts("fake GPU", memory.free, memory.total, self._engines, version="fake")

    def memory(self) -> Memory:
        self.check()
        return Memory(
            self.memory_bytes - self._allocated() - self.used_by_others, self.memory_bytes
        )

    def trim(self) -> None:
        self.check()

    def allocate(self, nbytes: int) -> FakeBlock:
        self.check()
        size = max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        if size > self.memory().free:
            raise CudaError(OUT_OF_MEMORY, "malloc")
        ends = (address + memory.nbytes for address, memory in self.blocks.items())
        block = FakeBlock(self, max(ends, default=BASE_ADDRESS) + ALIGNMENT, size)
        self.peak_bytes = max(self.peak_bytes, self._allocated())
        return block

    def pin(self, address: int, nbytes: int, read_only: bool) -> None:
        self.check()
        if nbytes > self._pinnable:
            raise CudaError(OUT_OF_MEMORY, "hostRegister")
        if any(a < address + nbytes and address < a + n for a, n in self.pins.items()):
            raise CudaError(712, "hostRegister")
        self.pins[address] = nbytes

    def unpin(self, address: int) -> None:
        self.check()
        if address not in self.pins:
            raise CudaError(713, "hostUnregister")
        del self.pins[address]

    def stream(self) -> FakeStream:
        self.check()
        self._streams.append(FakeStream(self, len(self._streams) in self._ignores_waits))
        return self._streams[-1]

    def event(self) -> FakeEvent:
        self.check()
        return FakeEvent(self)

    def synchronize(self) -> None:
        self.run_until(lambda: all(stream.is_idle() for stream in self._streams))

    def check(self) -> None:
        """Fail if there was a sticky fault."""
        if self.sticky:
            raise CudaError(self.sticky, "a call after a fault")

    def count_operation(self) -> None:
        """Count an operation; fail if a fault is due."""
        self.check()
        status = self._faults.get(self.operations, 0)
        self.operations += 1
        if status:
            self.sticky = status if status in STICKY_STATUSES else 0
            raise CudaError(status, f"operation {self.operations - 1}")

    def turn_of(self, kind: str) -> Callable[[], bool]:
        """Return whether an operation that is issued now may begin, as far as engines go."""
        if kind == "kernel" or self._engines != 1:
            return lambda: True
        copy = object()
        self._copies.append(copy)
        return lambda: self._copies[0] is copy

    def occupy(self, kind: str, start: float, seconds: float) -> float:
        """Begin an operation at `start` or when its engine is free; return its end."""
        if kind != "kernel" and self._engines == 1:
            self._copies.popleft()
            start = max(start, self._engine_end)
            self._engine_end = start + seconds
        self.timeline.append(TimedOperation(kind, start, start + seconds))
        return start + seconds

    def host_address(self, address: int, nbytes: int) -> int:
        """Return the host address of device memory; an illegal address is a sticky fault."""
        for start, memory in self.blocks.items():
            if start <= address and address + nbytes <= start + memory.nbytes:
                return memory.ctypes.data + address - start
        self.sticky = 700
        raise CudaError(700, f"a copy of {nbytes} bytes at {address:#x}")

    def is_pinned(self, address: int, nbytes: int) -> bool:
        """Whether a copy from here is asynchronous; one across two registrations is refused."""
        for start, size in self.pins.items():
            if start <= address < start + size:
                if address + nbytes > start + size:
                    raise CudaError(1, "a copy across two registrations")
                return True
        self.pageable += 1
        return False

    def step(self) -> bool:
        """Run one step of some stream; return False if none can."""
        ready = [stream for stream in self._streams if stream.is_ready()]
        if not ready:
            return False
        stream, steps = self._burst
        if stream not in ready or steps == 0:
            stream, steps = self._random.choice(ready), self._random.randint(1, MAX_BURST)
        assert stream is not None
        stream.advance()
        self._burst = (stream, steps - 1)
        return True

    def run_until(self, done: Callable[[], bool]) -> None:
        """Step until `done`. Raises on a deadlock between streams."""
        self.check()
        while not done():
            if not self.step():
                raise CudaError(1, "all streams wait for operations that were never issued")

    def _allocated(self) -> int:
        return sum(memory.nbytes for memory in self.blocks.values())
