"""A simulated runtime: the accelerator's code without a device.

Device memory is host memory, and kernels are those of CPU variants. When an operation begins and
ends follows from its cost, by a model of the engines, in one of two kinds of time.

Virtual time is computed: operations run when the host waits for them. While a copy lasts, its
target is poisoned. Costs drawn from a seed let queues proceed in any order that respects what is
guaranteed: order within a queue, and waits for events. So for most seeds a missing wait corrupts
data, as it might on a real device.

In real time, each operation is held to its modelled end: an emulated GPU.
"""

from __future__ import annotations

import ctypes
import random
import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any
from weakref import WeakSet

import numpy as np

from hetsched.devices.accelerator.engines import Engines, Operation
from hetsched.devices.accelerator.runtime import Copy, DeviceFacts, Fault, Memory

ALLOCATION_BYTES = 512
POISON = 0xFF
"""A byte whose repetition is NaN in every floating-point type."""
_PR_SET_TIMERSLACK = 29

Costs = Callable[[str, int, int], float]
"""(phase, load units, bytes copied) -> seconds of an operation at full pace."""


def random_costs(seed: int) -> Costs:
    """Return costs of several orders of magnitude."""
    generator = random.Random(seed)
    return lambda phase, units, nbytes: 10 ** generator.uniform(-6, -3)


class SimulatedError(RuntimeError):
    """An error of the simulated runtime, and its class."""

    def __init__(self, fault: Fault, operation: str) -> None:
        super().__init__(f"{fault.name.lower()} fault in {operation}")
        self.fault = fault


class SimulatedBlock:
    """Device memory, filled with poison."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.memory = np.full(nbytes, POISON, np.uint8)

    def pointer(self) -> SimulatedBlock:
        return self


class SimulatedRuntime:
    """A simulated GPU.

    Parameters
    ----------
    memory : int, bytes
    seed : int
        Of the costs, if none are given.
    costs : callable or None
        See `Costs`; may be replaced while the device is idle.
    time : Time, optional
        Virtual time with two copy engines, if none is given.
    ignores_waits : set of int
        Queues, in order of creation, that ignore all waits.
    faults : mapping
        Index of an operation (copies and launches, from 0) -> how it fails. After a sticky fault
        all later calls fail too.
    pinnable : int, bytes
        Largest number of bytes registered in one call; more is refused.
    reserve, needs_warm_up
        See `DeviceFacts`.
    """

    kernels = "cpu"
    xp: Any = np

    def __init__(
        self,
        memory: int = 1 << 30,
        seed: int = 0,
        costs: Costs | None = None,
        time: Time | None = None,
        ignores_waits: frozenset[int] = frozenset(),
        faults: dict[int, Fault] | None = None,
        pinnable: int = 1 << 40,
        reserve: int = 0,
        needs_warm_up: bool = True,
    ) -> None:
        self.memory_bytes = memory
        self.used_by_others = 0
        """Bytes that other processes use."""
        self.blocks: WeakSet[SimulatedBlock] = WeakSet()
        self.pins: dict[int, int] = {}
        """Host address -> bytes registered in one call."""
        self.is_lost = False
        self.operations = 0
        self.pageable = 0
        """Copies that were synchronous: the host waited for them."""
        self.peak_bytes = 0
        """The most device memory allocated at once."""
        self.history: list[Operation] | None = None
        """All operations issued, if there is a list."""
        self.costs = costs or random_costs(seed)
        self.kernels_block = False
        """The host waits for each kernel, as for one that returns partial results to it."""
        self.time = time or VirtualTime()
        self._ignores_waits = ignores_waits
        self._faults = faults or {}
        self._pinnable = pinnable
        self._reserve = reserve
        self._needs_warm_up = needs_warm_up
        self._queues: list[SimulatedQueue] = []

    @property
    def facts(self) -> DeviceFacts:
        engines, is_cold = self.time.engines, self._needs_warm_up
        return DeviceFacts("simulated GPU", self._reserve, engines, needs_warm_up=is_cold)

    def memory(self) -> Memory:
        used = self._used_bytes() + self.used_by_others
        return Memory(self.memory_bytes - used, self.memory_bytes)

    def _used_bytes(self) -> int:
        return sum(block.nbytes for block in self.blocks)

    def trim(self) -> None:
        pass

    def allocate(self, nbytes: int) -> SimulatedBlock:
        self.check()
        size = max(1, -(-nbytes // ALLOCATION_BYTES)) * ALLOCATION_BYTES
        if size > self.memory().free:
            raise SimulatedError(Fault.MEMORY, f"an allocation of {size} bytes")
        block = SimulatedBlock(size)
        self.blocks.add(block)
        self.peak_bytes = max(self.peak_bytes, self._used_bytes())
        return block

    def pin(self, host: np.ndarray) -> None:
        address, nbytes = host.ctypes.data, host.nbytes
        if nbytes > self._pinnable:
            raise SimulatedError(Fault.MEMORY, "pinning")
        if any(a < address + nbytes and address < a + n for a, n in self.pins.items()):
            raise SimulatedError(Fault.USAGE, "pinning twice")
        self.pins[address] = nbytes

    def unpin(self, host: np.ndarray) -> None:
        if self.pins.pop(host.ctypes.data, None) is None:
            raise SimulatedError(Fault.USAGE, "unpinning")

    def queue(self) -> SimulatedQueue:
        self._queues.append(SimulatedQueue(self, len(self._queues) in self._ignores_waits))
        return self._queues[-1]

    def event(self) -> SimulatedEvent:
        return SimulatedEvent(self)

    def synchronize(self) -> None:
        self.check()
        for queue in self._queues:
            queue.drain()

    def host_seconds(self) -> float | None:
        return self.time.host_seconds()

    def classify(self, error: BaseException, opening: bool = False) -> Fault:
        if isinstance(error, SimulatedError):
            return error.fault
        return Fault.MEMORY if isinstance(error, MemoryError) else Fault.USAGE

    def restart(self, costs: Costs, is_host_instant: bool) -> None:
        """Begin virtual time anew, with other costs. The device must be idle."""
        self.synchronize()
        self.costs = costs
        self.time.restart(is_host_instant)

    def close(self) -> None:
        self.time.close()

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

    def wait_for(self, operations: Iterable[Operation]) -> None:
        """Wait until `operations` have ended. Raises their errors."""
        for operation in operations:
            self.time.run_until_end(operation)
            if operation.error is not None:
                raise operation.error


class SimulatedQueue:
    """A queue of operations. Those behind one that failed are skipped, and fail alike."""

    def __init__(self, runtime: SimulatedRuntime, ignores_waits: bool) -> None:
        self._runtime = runtime
        self._ignores_waits = ignores_waits
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
            runtime.count_operation()
            device = runtime.device_memory(block, offset, host.nbytes)
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
        device = self._runtime.device_memory(block, offset, nbytes)
        self._issue("compute", lambda: device.fill(0), 0, 0, [device])

    def array(
        self, block: SimulatedBlock, offset: int, shape: tuple[int, ...], dtype: str
    ) -> np.ndarray:
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(block.memory, dtype, count, offset).reshape(shape)

    def launch(self, call: Callable[[], None], units: int) -> None:
        self._runtime.count_operation()
        self._issue("compute", call, units, 0, [])
        if self._runtime.kernels_block:
            self.finish()

    def record(self, event: SimulatedEvent) -> None:
        self._runtime.check()
        event.set(self._before(), self._runtime.host_seconds())
        if not self._is_behind_operation:
            self._starts.append(event)
        self._is_behind_operation = False

    def wait(self, event: SimulatedEvent) -> None:
        self._runtime.check()
        self._is_behind_operation = False
        if not self._ignores_waits:
            self._waits += event.before

    def finish(self) -> None:
        """Have the host wait for all operations of this queue."""
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
    ) -> None:
        runtime = self._runtime
        seconds = runtime.costs(phase, units, nbytes) if units else 0.0
        operation = Operation(phase, seconds, work, self._before(), targets=targets)
        for event in self._starts:
            event.next = operation
        self._starts, self._waits, self._last = [], [], operation
        self._is_behind_operation = True
        if runtime.history is not None:
            runtime.history.append(operation)
        runtime.time.issue(operation)


class SimulatedEvent:
    """Passes at the end of the operation that it is right behind, or at the start of the next."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self._runtime = runtime
        self._seconds: float | None = 0.0
        self.before: list[Operation] = []
        self.next: Operation | None = None

    def set(self, before: list[Operation], host_seconds: float | None) -> None:
        """Record it behind `before`."""
        self.before, self.next = before, None
        self._issued, self._seconds = host_seconds or 0.0, None

    def is_done(self) -> bool:
        self.wait()
        return True

    def wait(self) -> None:
        self._runtime.check()
        self._runtime.wait_for(self.before)
        if self.next is None:
            self._seconds = self.seconds()

    def seconds_after(self, earlier: SimulatedEvent) -> float:
        self._runtime.check()
        return self.seconds() - earlier.seconds()

    def seconds(self) -> float:
        """Return when it passed, on the clock of the runtime's time."""
        if self._seconds is not None:
            return self._seconds
        if self.next is not None and self.next.started is not None:
            return self.next.started
        ends = [operation.ended for operation in self.before]
        if None in ends:
            raise SimulatedError(Fault.USAGE, "the time of an event that hasn't passed")
        return max([self._issued, *(end for end in ends if end is not None)])


# ---- time


class Time:
    """Decides when operations that were issued run; `late`: how many really took longer than by
    the model."""

    late = 0

    def __init__(self, engines: int = 2, duplex: tuple[float, float] = (1.0, 1.0)) -> None:
        self.engines = engines
        self._duplex = duplex
        self._model = Engines(engines, duplex)

    def restart(self, is_host_instant: bool = False) -> None:
        """Begin anew, if the time is computed. The device must be idle.

        An instant host issues all operations at the start, so that times don't depend on when
        messages arrive; another one takes time by waiting.
        """

    def host_seconds(self) -> float | None:
        """Return the present on this clock; None: the host takes no time."""
        raise NotImplementedError

    def issue(self, operation: Operation) -> None:
        raise NotImplementedError

    def run_until_end(self, operation: Operation) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """End its threads, if it has some."""


class VirtualTime(Time):
    """Operations run in order of virtual time, up to the one that is waited for."""

    _now = 0.0
    _is_host_instant = False

    def restart(self, is_host_instant: bool = False) -> None:
        self._model, self._now = Engines(self.engines, self._duplex), 0.0
        self._is_host_instant = is_host_instant

    def host_seconds(self) -> float | None:
        return None if self._is_host_instant else self._now

    def issue(self, operation: Operation) -> None:
        operation.earliest_start = self.host_seconds() or 0.0
        self._model.issue(operation)

    def run_until_end(self, operation: Operation) -> None:
        events = self._model.advance(float("inf"))
        while operation.ended is None:
            event = next(events, None)
            if event is None:
                raise SimulatedError(Fault.USAGE, "a wait for what was never issued")
            current, is_end = event
            if is_end:
                current.perform()
                current.after = ()  # otherwise each would keep all earlier ones alive
            else:
                for target in current.targets:
                    target.fill(POISON)
        self._now = max(self._now, operation.ended)


class RealTime(Time):
    """Operations really copy and compute, and last until their modelled end.

    One thread for each engine does the real work, as soon as its dependencies are done, ahead of
    the model: on a shared core a thread may wait longer to be scheduled than a copy lasts, and
    only work that is really too slow should count as late. The threads inherit the cores of their
    creator. Ends are absolute deadlines of the model, which advances whenever somebody looks, so a
    thread that wakes up late delays nothing else.
    """

    def __init__(self, engines: int, duplex: tuple[float, float]) -> None:
        super().__init__(engines, duplex)
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


def precise_sleep() -> None:
    """Make the calling thread's timers fire on time rather than up to 50 us late."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
