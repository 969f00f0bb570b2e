"""A CUDA runtime that is only a model of one: what `cuda.py` is tested on where there is no GPU.

Device memory is host memory. Streams hold their operations back and run them only when somebody
waits, in an order drawn from a seed that heeds nothing but what CUDA promises: order within a
stream, and waits for events. An operation that has begun but not ended leaves poison where it will
write. So a missing wait corrupts data for most seeds, as it would some day on a GPU.

Statuses are those that CUDA gives. It computes with NumPy, by the CPU's variants.
"""

from __future__ import annotations

import ctypes
import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from hetsched.devices.cuda.faults import NOT_READY, OUT_OF_MEMORY, STICKY_STATUSES, CudaError
from hetsched.devices.cuda.runtime import TO_DEVICE, Facts

POISON = 0xFF
"""Makes NaN of every floating-point type."""
ALIGNMENT = 512
BASE = 1 << 56
"""Device addresses start beyond all of the host's."""
BURST = 8
"""Operations that one stream runs ahead of the others, at most. Arbitrary."""

Steps = Iterator[None]


class FakeEvent:
    """`recorded` counts records asked for, `passed` those that have run."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self._runtime = runtime
        self.recorded = 0
        self.passed = 0
        self.at = 0.0

    def status(self) -> int:
        if self._runtime.sticky:
            return self._runtime.sticky
        self._runtime.step()
        return self._runtime.sticky or (0 if self.passed == self.recorded else NOT_READY)

    def block(self) -> None:
        ticket = self.recorded
        self._runtime.run_until(lambda: self.passed >= ticket)

    def milliseconds_after(self, earlier: FakeEvent) -> float:
        self._runtime.check()
        if self.passed < self.recorded or earlier.passed < earlier.recorded:
            raise CudaError(NOT_READY, "eventElapsedTime")
        return float(np.float32((self.at - earlier.at) * 1e3))


@dataclass
class FakeStream:
    """`deaf`: its waits are dropped, to show that a test would notice.

    A call that raises does so late, when somebody waits; those behind it, which the caller would
    not have come to on a GPU, are then left out (`spoilt`).
    """

    runtime: FakeRuntime
    deaf: bool = False
    queue: deque[tuple[Callable[[], bool], Callable[[], Steps]]] = field(default_factory=deque)
    running: Steps | None = None
    spoilt: bool = False

    def copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self.runtime.count()
        device, host = (target, source) if kind == TO_DEVICE else (source, target)
        into, out_of = self.runtime.inside(device, nbytes), host
        if kind == TO_DEVICE:
            self._push(lambda: _copying(into, out_of, nbytes))
        else:
            self._push(lambda: _copying(out_of, into, nbytes))
        if not self.runtime.is_pinned(host, nbytes):
            self.runtime.run_until(lambda: not self.queue and self.running is None)

    def launch(self, call: Callable[[], None]) -> None:
        self.runtime.count()
        self._push(lambda: self._calling(call))

    def record(self, event: FakeEvent) -> None:
        self.runtime.check()
        event.recorded += 1
        ticket = event.recorded
        self._push(lambda: _marking(event, ticket))

    def wait(self, event: FakeEvent) -> None:
        """For the record asked for last; for none, if there was none."""
        self.runtime.check()
        ticket = event.recorded
        if not self.deaf:
            self._push(lambda: iter(()), lambda: event.passed >= ticket)

    def idle(self) -> bool:
        return self.running is None and not self.queue

    def ready(self) -> bool:
        return self.running is not None or (bool(self.queue) and self.queue[0][0]())

    def advance(self) -> None:
        """Run one step of the first operation."""
        if self.running is None:
            self.running = self.queue.popleft()[1]()
        try:
            next(self.running)
        except StopIteration:
            self.running = None
            self.spoilt = self.spoilt and bool(self.queue)

    def _calling(self, call: Callable[[], None]) -> Steps:
        yield
        if not self.spoilt:
            self.spoilt = True
            call()
            self.spoilt = False

    def _push(self, steps: Callable[[], Steps], ready: Callable[[], bool] = lambda: True) -> None:
        self.queue.append((ready, steps))


class FakeBlock:
    """Device memory, full of poison; bytes beyond its end are somebody else's."""

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

    def pointer(self, offset: int) -> np.ndarray:
        return self.memory[offset:]


class FakeRuntime:
    """A GPU that isn't there.

    Parameters
    ----------
    memory : int, bytes
    seed : int
        Of the order in which streams run.
    deaf : set of int
        Streams, in the order of their making, that heed no wait.
    faults : mapping
        Number of an operation (copies and launches, from 0) -> status with which it fails; a
        sticky one fails everything after it too.
    pinnable : int, bytes
        What may be registered in one call; more fails with status 2.
    absent : int
        Status that opening it fails with: 35 without a driver, 100 without a device.
    """

    kernels = "cpu"

    def __init__(
        self,
        memory: int = 1 << 30,
        seed: int = 0,
        deaf: frozenset[int] = frozenset(),
        faults: dict[int, int] | None = None,
        pinnable: int = 1 << 40,
        engines: int = 2,
        absent: int = 0,
    ) -> None:
        self.xp = np
        self.memory = memory
        self.blocks: dict[int, np.ndarray] = {}
        self.pins: dict[int, int] = {}
        self.sticky = 0
        self.operations = 0
        self.pageable = 0
        """Copies that had to run while the host waited."""
        self._random = random.Random(seed)
        self._deaf = deaf
        self._faults = faults or {}
        self._pinnable = pinnable
        self._engines = engines
        self._absent = absent
        self._streams: list[FakeStream] = []
        self._favourite: tuple[FakeStream | None, int] = (None, 0)

    @property
    def facts(self) -> Facts:
        if self._absent:
            raise CudaError(self._absent, "getDeviceCount")
        free = self.memory - self._allocated()
        return Facts("fake GPU", free, self.memory, self._engines, version="fake")

    def allocate(self, nbytes: int) -> FakeBlock:
        self.check()
        size = max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        if size > self.memory - self._allocated():
            raise CudaError(OUT_OF_MEMORY, "malloc")
        ends = (address + memory.nbytes for address, memory in self.blocks.items())
        return FakeBlock(self, max(ends, default=BASE) + ALIGNMENT, size)

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
        self._streams.append(FakeStream(self, len(self._streams) in self._deaf))
        return self._streams[-1]

    def event(self) -> FakeEvent:
        self.check()
        return FakeEvent(self)

    def synchronize(self) -> None:
        self.run_until(lambda: all(stream.idle() for stream in self._streams))

    def check(self) -> None:
        if self.sticky:
            raise CudaError(self.sticky, "a call after a fault")

    def count(self) -> None:
        """Count an operation, and fail it if it is its turn."""
        self.check()
        status = self._faults.get(self.operations, 0)
        self.operations += 1
        if status:
            self.sticky = status if status in STICKY_STATUSES else 0
            raise CudaError(status, f"operation {self.operations - 1}")

    def inside(self, address: int, nbytes: int) -> int:
        """The host's address of device memory; an illegal one is found out as CUDA would."""
        for start, memory in self.blocks.items():
            if start <= address and address + nbytes <= start + memory.nbytes:
                return memory.ctypes.data + address - start
        self.sticky = 700
        raise CudaError(700, f"a copy of {nbytes} bytes at {address:#x}")

    def is_pinned(self, address: int, nbytes: int) -> bool:
        """Whether a copy from here may run on its own. One that crosses a border is refused."""
        for start, size in self.pins.items():
            if start <= address < start + size:
                if address + nbytes > start + size:
                    raise CudaError(1, "a copy across two registrations")
                return True
        self.pageable += 1
        return False

    def step(self) -> bool:
        """Let some stream do one step; False: none can."""
        ready = [stream for stream in self._streams if stream.ready()]
        if not ready:
            return False
        stream, left = self._favourite
        if stream not in ready or left == 0:
            stream, left = self._random.choice(ready), self._random.randint(1, BURST)
        assert stream is not None
        stream.advance()
        self._favourite = (stream, left - 1)
        return True

    def run_until(self, done: Callable[[], bool]) -> None:
        """Step until `done`. Raises if that never comes: streams that wait for each other."""
        self.check()
        while not done():
            if not self.step():
                raise CudaError(1, "streams wait for what nobody will do")

    def _allocated(self) -> int:
        return sum(memory.nbytes for memory in self.blocks.values())


def _copying(target: int, source: int, nbytes: int) -> Steps:
    ctypes.memset(target, POISON, nbytes)
    yield
    ctypes.memmove(target, source, nbytes)


def _marking(event: FakeEvent, ticket: int) -> Steps:
    event.passed = max(event.passed, ticket)
    event.at = time.monotonic()
    yield from ()
