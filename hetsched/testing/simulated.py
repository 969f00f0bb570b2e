"""A simulated GPU that checks how it is used, and fails on demand."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hetsched.devices.accelerator.engines import Operation
from hetsched.devices.accelerator.runtime import Copy, DeviceFacts, Fault, Memory
from hetsched.devices.accelerator.simulated import (
    Costs,
    RealTime,
    SimulatedBlock,
    SimulatedEvent,
    SimulatedQueue,
    SimulatedRuntime,
    VirtualTime,
)


class StrictError(RuntimeError):
    """An error of the strict runtime, and its class."""

    def __init__(self, fault: Fault, operation: str) -> None:
        super().__init__(f"{fault.name.lower()} fault in {operation}")
        self.fault = fault


class StrictRuntime(SimulatedRuntime):
    """A simulated GPU on which mistakes show.

    Costs drawn from a seed let queues proceed in any order that respects what is guaranteed: order
    within a queue, and waits for events. So for most seeds a missing wait corrupts data, as it
    might on a real device.

    Parameters
    ----------
    memory : int, bytes
    seed : int
        Of the costs, if none are given.
    costs : callable, optional
        (phase, units, bytes) -> seconds.
    time : VirtualTime or RealTime, optional
        Virtual time with two copy engines, if none is given.
    ignores_waits : set of int
        Queues, in order of creation, that ignore all waits.
    faults : mapping
        Index of an operation (copies and launches, from 0) -> how it fails. After a sticky fault
        later operations fail too.
    pinnable : int, bytes
        Largest number of bytes registered in one call; more is refused.
    reserve, needs_warm_up
        See `DeviceFacts`.
    """

    def __init__(
        self,
        memory: int = 1 << 30,
        seed: int = 0,
        costs: Costs | None = None,
        time: VirtualTime | RealTime | None = None,
        ignores_waits: frozenset[int] = frozenset(),
        faults: dict[int, Fault] | None = None,
        pinnable: int = 1 << 40,
        reserve: int = 0,
        needs_warm_up: bool = True,
    ) -> None:
        super().__init__(memory, time or VirtualTime())
        generator = random.Random(seed)  # costs of several orders of magnitude
        self.costs = costs or (lambda phase, units, nbytes: 10 ** generator.uniform(-6, -3))
        self.used_by_others = 0
        """Bytes that other processes use."""
        self.is_lost = False
        self.pageable = 0
        """Copies that were synchronous: the host waited for them."""
        self.peak_bytes = 0
        """The most device memory allocated at once."""
        self.history: list[Operation] | None = None
        """All operations issued, if there is a list: it keeps their errors, too."""
        self.kernels_block = False
        """The host waits for each kernel, as for one that returns partial results to it."""
        self._ignores_waits = ignores_waits
        self._faults = faults or {}
        self._operations = 0
        self._pinnable = pinnable
        engines = self.time.engines
        self._facts = DeviceFacts("simulated GPU", reserve, engines, needs_warm_up=needs_warm_up)

    @property
    def facts(self) -> DeviceFacts:
        return self._facts

    def memory(self) -> Memory:
        memory = super().memory()
        return replace(memory, free=memory.free - self.used_by_others)

    def allocate(self, nbytes: int) -> SimulatedBlock:
        block = super().allocate(nbytes)
        self.peak_bytes = max(self.peak_bytes, sum(block.nbytes for block in self.blocks))
        return block

    def pin(self, host: np.ndarray) -> None:
        address, nbytes = host.ctypes.data, host.nbytes
        if nbytes > self._pinnable:
            raise StrictError(Fault.MEMORY, "pinning")
        if any(a < address + nbytes and address < a + n for a, n in self.pins.items()):
            raise StrictError(Fault.USAGE, "pinning twice")
        super().pin(host)

    def is_pinned(self, host: np.ndarray) -> bool:
        is_pinned, first = super().is_pinned(host), host.ctypes.data
        end = first + host.nbytes
        if is_pinned and not any(a <= first and end <= a + n for a, n in self.pins.items()):
            raise StrictError(Fault.USAGE, "a copy across the end of a registration")
        self.pageable += not is_pinned
        return is_pinned

    def queue(self) -> SimulatedQueue:
        self._queues.append(_StrictQueue(self, len(self._queues) in self._ignores_waits))
        return self._queues[-1]

    def synchronize(self) -> None:
        self.check()
        super().synchronize()

    def classify(self, error: BaseException) -> Fault:
        return error.fault if isinstance(error, StrictError) else super().classify(error)

    def check(self) -> None:
        if self.is_lost:
            raise StrictError(Fault.STICKY, "a call after a fault")

    def count_operation(self) -> None:
        self.check()
        number, self._operations = self._operations, self._operations + 1
        if number in self._faults:
            self.fail(self._faults[number], f"operation {number}")

    def check_bounds(self, block: SimulatedBlock, offset: int, nbytes: int) -> None:
        if not 0 <= offset <= offset + nbytes <= block.nbytes:
            self.fail(Fault.STICKY, f"{nbytes} bytes at {offset} of {block.nbytes}")

    def fail(self, fault: Fault, operation: str) -> None:
        self.is_lost = fault is Fault.STICKY
        raise StrictError(fault, operation)


class _StrictQueue(SimulatedQueue):
    def __init__(self, runtime: StrictRuntime, ignores_waits: bool) -> None:
        super().__init__(runtime)
        self._strict = runtime
        self._ignores_waits = ignores_waits

    def _copy(self, phase: str, copies: list[Copy], units: int) -> None:
        for block, offset, host in copies:
            self._strict.count_operation()
            self._strict.check_bounds(block, offset, host.nbytes)
        super()._copy(phase, copies, units)

    def clear(self, block: SimulatedBlock, offset: int, nbytes: int) -> None:
        self._strict.check_bounds(block, offset, nbytes)
        super().clear(block, offset, nbytes)

    def launch(self, call: Callable[[], None], units: int) -> None:
        self._strict.count_operation()
        super().launch(call, units)
        if self._strict.kernels_block:
            self.finish()

    def wait(self, event: SimulatedEvent) -> None:
        super().wait(event)
        if self._ignores_waits:
            self._waits.clear()

    def _issue(self, *operation: Any) -> Operation:
        issued = super()._issue(*operation)
        if self._strict.history is not None:
            self._strict.history.append(issued)
        return issued
