"""A simulated runtime: the accelerator's code without a device.

Device memory is host memory, and kernels are those of CPU variants. When an operation begins and
ends follows from its cost, by a model of the engines, in one of two kinds of time.

Virtual time is computed: operations run when the host waits for them. While a copy lasts, its
target is poisoned. In real time, each operation is held to its modelled end: an emulated GPU.
`hetsched.testing` has one that also checks how it is used.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any
from weakref import WeakSet

import numpy as np

from hetsched.devices.accelerator.engines import Engines, Operation
from hetsched.devices.accelerator.runtime import (
    ALLOCATION_BYTES,
    Copy,
    DeviceFacts,
    Fault,
    Memory,
)

POISON = 0xFF
"""A byte whose repetition is NaN in every floating-point type."""

Costs = Callable[[str, int, int], float]
"""(phase, load units, bytes copied) -> seconds of an operation at full pace."""


class SimulatedBlock:
    """Device memory, filled with poison."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory = np.full(nbytes, POISON, np.uint8)

    def pointer(self) -> SimulatedBlock:
        return self


class SimulatedRuntime:
    """A simulated GPU with `memory` bytes."""

    kernels = "cpu"
    xp: Any = np

    def __init__(self, memory: int, time: VirtualTime | RealTime) -> None:
        self.memory_bytes = memory
        self.time = time
        self.costs: Costs = lambda phase, units, nbytes: 0.0
        self.blocks: WeakSet[SimulatedBlock] = WeakSet()
        self.pins: dict[int, int] = {}
        """Host address -> bytes registered in one call."""
        self._queues: list[SimulatedQueue] = []

    @property
    def facts(self) -> DeviceFacts:
        return DeviceFacts("simulated GPU", engines=self.time.engines, needs_warm_up=False)

    def memory(self) -> Memory:
        used = sum(block.nbytes for block in self.blocks)
        return Memory(self.memory_bytes - used, self.memory_bytes)

    def trim(self) -> None:
        pass

    def allocate(self, nbytes: int) -> SimulatedBlock:
        size = max(1, -(-nbytes // ALLOCATION_BYTES)) * ALLOCATION_BYTES
        if size > self.memory().free:
            raise MemoryError(f"an allocation of {size} bytes")
        block = SimulatedBlock(size)
        self.blocks.add(block)
        return block

    def pin(self, host: np.ndarray) -> None:
        self.pins[host.ctypes.data] = host.nbytes

    def unpin(self, host: np.ndarray) -> None:
        del self.pins[host.ctypes.data]

    def is_pinned(self, host: np.ndarray) -> bool:
        """Whether a copy from or to `host` is asynchronous."""
        first = host.ctypes.data
        return any(start <= first < start + size for start, size in self.pins.items())

    def queue(self) -> SimulatedQueue:
        self._queues.append(SimulatedQueue(self))
        return self._queues[-1]

    def event(self) -> SimulatedEvent:
        return SimulatedEvent(self)

    def synchronize(self) -> None:
        for queue in self._queues:
            queue.drain()

    def host_seconds(self) -> float | None:
        return self.time.host_seconds()

    def classify(self, error: BaseException) -> Fault:
        return Fault.MEMORY if isinstance(error, MemoryError) else Fault.USAGE

    def restart(self, costs: Costs, is_host_instant: bool) -> None:
        """Begin virtual time anew, with other costs. The device must be idle."""
        self.synchronize()
        self.costs = costs
        self.time.restart(is_host_instant)

    def wait_for(self, operations: Iterable[Operation]) -> None:
        """Wait until `operations` have ended. Raises their errors."""
        for operation in operations:
            self.time.run_until_end(operation)
            if operation.error is not None:
                raise operation.error


class SimulatedQueue:
    """A queue of operations. Those behind one that failed are skipped, and fail alike."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._runtime = runtime
        self._last: Operation | None = None
        self._waits: list[Operation] = []
        """What the next operation must wait for, besides the last one."""
        self._is_behind_operation = False
        self._starts: list[SimulatedEvent] = []
        """Events that pass when the next operation starts."""

    def copy_in(self, copies: Iterable[Copy], units: int) -> None:
        self._copy("h2d", list(copies), units)

    def copy_out(self, copies: Iterable[Copy], units: int) -> None:
        self._copy("d2h", list(copies), units)

    def _copy(self, phase: str, copies: list[Copy], units: int) -> None:
        runtime, is_pageable = self._runtime, False
        pairs, nbytes = [], 0
        for block, offset, host in copies:
            device = block.memory[offset : offset + host.nbytes]
            values = host.reshape(-1).view(np.uint8)
            pairs.append((device, values) if phase == "h2d" else (values, device))
            nbytes += host.nbytes
            is_pageable |= not runtime.is_pinned(host)
        if not pairs:
            return

        def work() -> None:
            for target, source in pairs:
                target[...] = source

        self._issue(phase, work, units, nbytes, [target for target, _ in pairs])
        if is_pageable:
            self.finish()

    def clear(self, block: SimulatedBlock, offset: int, nbytes: int) -> None:
        device = block.memory[offset : offset + nbytes]
        self._issue("compute", lambda: device.fill(0), 0, 0, [device])

    def array(
        self, block: SimulatedBlock, offset: int, shape: tuple[int, ...], dtype: str
    ) -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(block.memory, dtype, count, offset).reshape(shape)

    def launch(self, call: Callable[[], None], units: int) -> None:
        self._issue("compute", call, units, 0, [])

    def record(self, event: SimulatedEvent) -> None:
        event.set(self._before(), self._runtime.host_seconds())
        if not self._is_behind_operation:
            self._starts.append(event)
        self._is_behind_operation = False

    def wait(self, event: SimulatedEvent) -> None:
        self._is_behind_operation = False
        self._waits += event.before

    def finish(self) -> None:
        self._runtime.wait_for(self._before())

    def drain(self) -> None:
        """Wait until nothing happens any more, and forget errors."""
        for operation in self._before():
            self._runtime.time.run_until_end(operation)
        self._last, self._waits, self._is_behind_operation = None, [], False

    def _before(self) -> list[Operation]:
        return [*self._waits, *([self._last] if self._last else [])]

    def _issue(
        self,
        phase: str,
        work: Callable[[], None],
        units: int,
        nbytes: int,
        targets: list[np.ndarray],
    ) -> Operation:
        runtime = self._runtime
        seconds = runtime.costs(phase, units, nbytes) if units else 0.0
        operation = Operation(phase, seconds, work, self._before(), targets=targets)
        for event in self._starts:
            event.next = operation
        self._starts, self._waits, self._last = [], [], operation
        self._is_behind_operation = True
        runtime.time.issue(operation)
        return operation


class SimulatedEvent:
    """Passes at the end of the operation that it is right behind, or at the start of the next."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._runtime = runtime
        self._seconds: float | None = 0.0
        self.before: list[Operation] = []
        self.next: Operation | None = None

    def set(self, before: list[Operation], host_seconds: float | None) -> None:
        self.before, self.next = before, None
        self._issued, self._seconds = host_seconds or 0.0, None

    def is_done(self) -> bool:
        self.wait()
        return True

    def wait(self) -> None:
        self._runtime.wait_for(self.before)
        if self.next is None:
            self._seconds = self.seconds()

    def seconds_after(self, earlier: SimulatedEvent) -> float:
        return self.seconds() - earlier.seconds()

    def seconds(self) -> float:
        """Return when it passed, on the clock of the runtime's time."""
        if self._seconds is not None:
            return self._seconds
        if self.next is not None and self.next.started is not None:
            return self.next.started
        ends = [operation.ended for operation in self.before]
        if None in ends:
            raise RuntimeError("the time of an event that hasn't passed")
        return max([self._issued, *(end for end in ends if end is not None)])


# ---- time


class VirtualTime:
    """Operations run in order of virtual time, up to the one that is waited for.

    `late`: how many really took longer than by the model.
    """

    late = 0

    def __init__(self, engines: int = 2, duplex: tuple[float, float] = (1.0, 1.0)) -> None:
        self.engines = engines
        self._duplex = duplex
        self.restart()

    def restart(self, is_host_instant: bool = False) -> None:
        """Begin anew. The device must be idle.

        An instant host issues all operations at the start, so that times don't depend on when
        messages arrive; another one takes time by waiting.
        """
        self._model, self._now = Engines(self.engines, self._duplex), 0.0
        self._is_host_instant = is_host_instant

    def host_seconds(self) -> float | None:
        return None if self._is_host_instant else self._now

    def close(self) -> None:
        pass

    def issue(self, operation: Operation) -> None:
        operation.earliest_start = self.host_seconds() or 0.0
        self._model.issue(operation)

    def run_until_end(self, operation: Operation) -> None:
        events = self._model.advance(float("inf"))
        while operation.ended is None:
            event = next(events, None)
            if event is None:
                raise RuntimeError("a wait for what was never issued")
            current, is_end = event
            if is_end:
                current.perform()
                current.after = ()  # otherwise each would keep all earlier ones alive
            else:
                for target in current.targets:
                    target.fill(POISON)
        self._now = max(self._now, operation.ended)


class RealTime:
    """Operations really copy and compute, and last until their modelled end.

    One thread for each engine does the real work, as soon as its dependencies are done, ahead of
    the model: on a shared core a thread may wait longer to be scheduled than a copy lasts, and
    only work that is really too slow should count as late. The threads inherit the cores of their
    creator. Ends are absolute deadlines of the model, which advances whenever somebody looks, so a
    thread that wakes up late delays nothing else.
    """

    def __init__(self, engines: int, duplex: tuple[float, float]) -> None:
        self.engines, self.late = engines, 0
        self._model = Engines(engines, duplex)
        self._changed = threading.Condition()
        self._queues: list[SimpleQueue[Operation | None]] = [
            SimpleQueue() for _ in range(self._model.count)
        ]
        self._threads = [
            threading.Thread(target=self._work, args=(queue,), name=f"engine{n}", daemon=True)
            for n, queue in enumerate(self._queues)
        ]
        for thread in self._threads:
            thread.start()

    def restart(self, is_host_instant: bool) -> None:
        pass

    def host_seconds(self) -> float | None:
        return time.monotonic()

    def issue(self, operation: Operation) -> None:
        operation.is_ready = False
        operation.earliest_start = time.monotonic()
        with self._changed:
            self._model.issue(operation)
        self._queues[self._model.engine(operation)].put(operation)

    def run_until_end(self, operation: Operation) -> None:
        with self._changed:
            while True:
                self._advance(time.monotonic())
                if operation.ended is not None:
                    return
                due = self._model.next_time()
                self._changed.wait(None if due is None else max(0.0, due - time.monotonic()))

    def close(self) -> None:
        """End the threads once they have finished their current work."""
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _advance(self, now: float) -> None:
        for operation, is_end in self._model.advance(now):
            if is_end:
                operation.after = ()  # otherwise each would keep all earlier ones alive

    def _work(self, queue: SimpleQueue[Operation | None]) -> None:
        while self._do(queue.get()):
            pass

    def _do(self, operation: Operation | None) -> bool:
        """Do one piece of real work without keeping a reference; False at the end marker."""
        if operation is None:
            return False
        before = operation.after  # the model drops them
        with self._changed:
            while not all(dependency.is_ready for dependency in before):
                self._changed.wait()
        operation.perform()
        with self._changed:
            now = time.monotonic()
            self._advance(now)  # otherwise lateness would depend on which thread runs first
            self._model.done(operation, now)
            self.late += operation.is_late
            self._changed.notify_all()
        return True
