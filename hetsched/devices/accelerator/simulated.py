"""A simulated runtime, for the accelerator's code without a device.

Device memory is host memory. Queues defer their operations until the host waits, and then run in a
seeded random order that respects only what is guaranteed: order within a queue, and waits for
events. While an operation is in progress, its output is poisoned. So for most seeds a missing wait
corrupts data, as it might on a real device.

A timeline on a virtual clock tells which operations a real device would overlap. One copy engine
begins copies in the order in which they were issued, whatever their queue.

Kernels are NumPy, by the CPU variants.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from hetsched.devices.accelerator.runtime import Copy, DeviceFacts, Fault, Memory

ALLOCATION_BYTES = 512
MAX_BURST = 8
"""Largest number of operations that a queue runs in a row. Arbitrary."""
POISON = 0xFF
"""A byte whose repetition is NaN in every floating-point type."""

Steps = Iterator[None]
"""An operation; it yields at points where another queue may run."""


class SimulatedError(RuntimeError):
    """An error of the simulated runtime, and its class."""

    def __init__(self, fault: Fault, operation: str) -> None:
        super().__init__(f"{fault.name.lower()} fault in {operation}")
        self.fault = fault


@dataclass(frozen=True)
class TimedOperation:
    """When a copy or a kernel would run on a GPU: seconds of a virtual clock.

    Attributes
    ----------
    kind : "h2d", "kernel" or "d2h"
    """

    kind: str
    start: float
    end: float


class SimulatedBlock:
    """Device memory, filled with poison."""

    def __init__(self, runtime: SimulatedRuntime, number: int, nbytes: int) -> None:
        self._runtime = runtime
        self._number = number
        self.nbytes = nbytes
        self.memory = np.full(nbytes, POISON, np.uint8)
        runtime.blocks[number] = nbytes

    def __del__(self) -> None:
        self._runtime.blocks.pop(self._number, None)

    def array(self, offset: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self.memory, dtype, count, offset).reshape(shape)

    def pointer(self) -> SimulatedBlock:
        return self


class SimulatedRuntime:
    """A simulated GPU.

    Parameters
    ----------
    memory : int, bytes
    seed : int
        Seed of the order in which queues run.
    ignores_waits : set of int
        Queues, in order of creation, that ignore all waits.
    faults : mapping
        Index of an operation (copies and launches, from 0) -> how it fails. After a sticky fault
        all later calls fail too.
    pinnable : int, bytes
        Largest number of bytes registered in one call; more is refused.
    is_absent : bool
        There is no device: opening it fails.
    reserve : int, bytes
        See `DeviceFacts`.
    """

    kernels = "cpu"

    def __init__(
        self,
        memory: int = 1 << 30,
        seed: int = 0,
        ignores_waits: frozenset[int] = frozenset(),
        faults: dict[int, Fault] | None = None,
        pinnable: int = 1 << 40,
        engines: int = 2,
        is_absent: bool = False,
        reserve: int = 0,
    ) -> None:
        self.xp = np
        self.memory_bytes = memory
        self.used_by_others = 0
        """Bytes that other processes use."""
        self.blocks: dict[int, int] = {}
        """Number of a block -> its bytes."""
        self.pins: dict[int, int] = {}
        """Host address -> bytes registered in one call."""
        self.is_lost = False
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
        self._is_absent = is_absent
        self._reserve = reserve
        self._allocations = 0
        self._copies: deque[object] = deque()
        """Copies that one engine for both directions hasn't begun."""
        self._engine_end = 0.0
        self._queues: list[SimulatedQueue] = []
        self._burst: tuple[SimulatedQueue | None, int] = (None, 0)
        """The running queue, and the steps that it may still take before the next draw."""

    @property
    def facts(self) -> DeviceFacts:
        if self._is_absent:
            raise SimulatedError(Fault.ABSENT, "opening")
        memory = self.memory()
        return DeviceFacts(
            "simulated GPU",
            memory.free,
            memory.total,
            self._reserve,
            self._engines,
            version="simulated",
        )

    def memory(self) -> Memory:
        self.check()
        free = self.memory_bytes - sum(self.blocks.values()) - self.used_by_others
        return Memory(free, self.memory_bytes)

    def trim(self) -> None:
        self.check()

    def allocate(self, nbytes: int) -> SimulatedBlock:
        self.check()
        size = max(1, -(-nbytes // ALLOCATION_BYTES)) * ALLOCATION_BYTES
        if size > self.memory().free:
            raise SimulatedError(Fault.MEMORY, f"an allocation of {size} bytes")
        self._allocations += 1
        block = SimulatedBlock(self, self._allocations, size)
        self.peak_bytes = max(self.peak_bytes, sum(self.blocks.values()))
        return block

    def pin(self, host: np.ndarray) -> None:
        self.check()
        address, nbytes = host.ctypes.data, host.nbytes
        if nbytes > self._pinnable:
            raise SimulatedError(Fault.MEMORY, "pinning")
        if any(a < address + nbytes and address < a + n for a, n in self.pins.items()):
            raise SimulatedError(Fault.USAGE, "pinning twice")
        self.pins[address] = nbytes

    def unpin(self, host: np.ndarray) -> None:
        self.check()
        if host.ctypes.data not in self.pins:
            raise SimulatedError(Fault.USAGE, "unpinning")
        del self.pins[host.ctypes.data]

    def queue(self) -> SimulatedQueue:
        self.check()
        self._queues.append(SimulatedQueue(self, len(self._queues) in self._ignores_waits))
        return self._queues[-1]

    def event(self) -> SimulatedEvent:
        self.check()
        return SimulatedEvent(self)

    def synchronize(self) -> None:
        self.run_until(lambda: all(queue.is_idle() for queue in self._queues))

    def classify(self, error: BaseException, opening: bool = False) -> Fault:
        if isinstance(error, SimulatedError):
            return error.fault
        return Fault.MEMORY if isinstance(error, MemoryError) else Fault.USAGE

    # ---- for queues and events

    def check(self) -> None:
        """Fail if there was a sticky fault."""
        if self.is_lost:
            raise SimulatedError(Fault.STICKY, "a call after a fault")

    def count_operation(self) -> None:
        """Count an operation; fail if a fault is due."""
        self.check()
        number, self.operations = self.operations, self.operations + 1
        if number in self._faults:
            self.is_lost = self._faults[number] is Fault.STICKY
            raise SimulatedError(self._faults[number], f"operation {number}")

    def device_memory(self, block: SimulatedBlock, offset: int, nbytes: int) -> np.ndarray:
        """Return a part of a block; anything beyond it is a sticky fault."""
        if not 0 <= offset <= offset + nbytes <= block.nbytes:
            self.is_lost = True
            raise SimulatedError(Fault.STICKY, f"{nbytes} bytes at {offset} of {block.nbytes}")
        return block.memory[offset : offset + nbytes]

    def is_pinned(self, host: np.ndarray) -> bool:
        """Whether a copy from here is asynchronous; one across two registrations is refused."""
        address, end = host.ctypes.data, host.ctypes.data + host.nbytes
        for start, size in self.pins.items():
            if start <= address < start + size:
                if end > start + size:
                    raise SimulatedError(Fault.USAGE, "a copy across two registrations")
                return True
        self.pageable += 1
        return False

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

    def step(self) -> bool:
        """Run one step of some queue; return False if none can."""
        ready = [queue for queue in self._queues if queue.is_ready()]
        if not ready:
            return False
        queue, steps = self._burst
        if queue not in ready or steps == 0:
            queue, steps = self._random.choice(ready), self._random.randint(1, MAX_BURST)
        assert queue is not None
        queue.advance()
        self._burst = (queue, steps - 1)
        return True

    def run_until(self, done: Callable[[], bool]) -> None:
        """Step until `done`. Raises on a deadlock between queues."""
        self.check()
        while not done():
            if not self.step():
                raise SimulatedError(Fault.USAGE, "a wait for what was never issued")


class SimulatedEvent:
    """`recorded` counts the records issued, `passed` those that have run."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._runtime = runtime
        self.recorded = 0
        self.passed = 0
        self.time = 0.0
        self.virtual_time = 0.0

    def is_done(self) -> bool:
        self._runtime.check()
        self._runtime.step()
        self._runtime.check()
        if self.passed == self.recorded:
            self._pass_time()
        return self.passed == self.recorded

    def wait(self) -> None:
        ticket = self.recorded
        self._runtime.run_until(lambda: self.passed >= ticket)
        self._pass_time()

    def _pass_time(self) -> None:
        self._runtime.host_time = max(self._runtime.host_time, self.virtual_time)

    def seconds_after(self, earlier: SimulatedEvent) -> float:
        self._runtime.check()
        if self.passed < self.recorded or earlier.passed < earlier.recorded:
            raise SimulatedError(Fault.USAGE, "the time of an event that hasn't passed")
        return float(np.float32((self.time - earlier.time) * 1e3)) * 1e-3


@dataclass(eq=False)
class SimulatedQueue:
    """A queue of operations.

    A call raises late, when the host waits. The calls behind it, which the host would not have
    issued on a GPU, are then skipped (`poisoned`).

    Attributes
    ----------
    ignores_waits : bool
        Its waits are dropped, to show that tests detect a missing wait.
    """

    runtime: SimulatedRuntime
    ignores_waits: bool = False
    waiting: deque[tuple[Callable[[], bool], Callable[[], Steps]]] = field(default_factory=deque)
    """(whether the operation may start, its steps)."""
    running: Steps | None = None
    poisoned: bool = False
    time: float = 0.0
    """When its last operation ends on the virtual clock."""

    def copy_in(self, copies: Iterable[Copy]) -> None:
        for block, offset, host in copies:
            self._copy("h2d", block, offset, host)

    def copy_out(self, copies: Iterable[Copy]) -> None:
        for block, offset, host in copies:
            self._copy("d2h", block, offset, host)

    def _copy(self, kind: str, block: SimulatedBlock, offset: int, host: np.ndarray) -> None:
        self.runtime.count_operation()
        device = self.runtime.device_memory(block, offset, host.nbytes)
        values = host.reshape(-1).view(np.uint8)
        target, source = (device, values) if kind == "h2d" else (values, device)
        seconds = host.nbytes / self.runtime.copy_rate
        self._push_timed(kind, seconds, lambda: _copy_steps(target, source))
        if not self.runtime.is_pinned(host):
            self._finish()

    def clear(self, block: SimulatedBlock, offset: int, nbytes: int) -> None:
        self.runtime.check()
        device = self.runtime.device_memory(block, offset, nbytes)
        self._push(lambda: _copy_steps(device, np.uint8(0)))

    def launch(self, call: Callable[[], None]) -> None:
        self.runtime.count_operation()
        seconds = self.runtime.kernel_seconds
        self._push_timed("kernel", seconds, lambda: self._call_steps(call))
        if self.runtime.kernels_block:
            self._finish()

    def record(self, event: SimulatedEvent) -> None:
        self.runtime.check()
        event.recorded += 1
        ticket = event.recorded
        self._push(lambda: self._record_steps(event, ticket))

    def wait(self, event: SimulatedEvent) -> None:
        self.runtime.check()
        ticket = event.recorded
        if not self.ignores_waits:
            self._push(lambda: self._wait_steps(event), lambda: event.passed >= ticket)

    def is_idle(self) -> bool:
        return self.running is None and not self.waiting

    def is_ready(self) -> bool:
        return self.running is not None or (bool(self.waiting) and self.waiting[0][0]())

    def advance(self) -> None:
        """Run one step of the first operation."""
        if self.running is None:
            self.running = self.waiting.popleft()[1]()
        try:
            next(self.running)
        except StopIteration:
            self.running = None
            self.poisoned = self.poisoned and bool(self.waiting)

    def _call_steps(self, call: Callable[[], None]) -> Steps:
        yield
        if not self.poisoned:
            self.poisoned = True
            call()
            self.poisoned = False

    def _record_steps(self, event: SimulatedEvent, ticket: int) -> Steps:
        event.passed = max(event.passed, ticket)
        event.time = time.monotonic()
        event.virtual_time = self.time
        yield from ()

    def _wait_steps(self, event: SimulatedEvent) -> Steps:
        self.time = max(self.time, event.virtual_time)
        yield from ()

    def _finish(self) -> None:
        """Have the host wait for all operations of this queue."""
        self.runtime.run_until(self.is_idle)
        self.runtime.host_time = max(self.runtime.host_time, self.time)

    def _push_timed(self, kind: str, seconds: float, steps: Callable[[], Steps]) -> None:
        """Queue an operation, which begins after this moment of the host's virtual time."""
        issued = self.runtime.host_time

        def timed() -> Steps:
            self.time = self.runtime.occupy(kind, max(self.time, issued), seconds)
            return steps()

        self._push(timed, self.runtime.turn_of(kind))

    def _push(
        self, steps: Callable[[], Steps], is_ready: Callable[[], bool] = lambda: True
    ) -> None:
        self.waiting.append((is_ready, steps))


def _copy_steps(target: np.ndarray, source: np.ndarray | np.uint8) -> Steps:
    target[...] = POISON
    yield
    target[...] = source
