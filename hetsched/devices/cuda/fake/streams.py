"""Streams and events of the fake runtime: operations are queued until the runtime steps them."""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hetsched.devices.cuda.faults import NOT_READY, CudaError
from hetsched.devices.cuda.runtime import TO_DEVICE

POISON = 0xFF
"""A byte whose repetition is NaN in every floating-point type."""

Steps = Iterator[None]
"""An operation; it yields at points where another stream may run."""


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


class FakeGpu(Protocol):
    """The methods of the fake runtime that streams and events use."""

    sticky: int
    host_time: float
    copy_rate: float
    kernel_seconds: float
    kernels_block: bool

    def check(self) -> None: ...

    def count_operation(self) -> None: ...

    def turn_of(self, kind: str) -> Callable[[], bool]: ...

    def occupy(self, kind: str, start: float, seconds: float) -> float: ...

    def host_address(self, address: int, nbytes: int) -> int: ...

    def is_pinned(self, address: int, nbytes: int) -> bool: ...

    def step(self) -> bool: ...

    def run_until(self, done: Callable[[], bool]) -> None: ...


class FakeEvent:
    """`recorded` counts the records issued, `passed` those that have run."""

    def __init__(self, runtime: FakeGpu) -> None:
        self._runtime = runtime
        self.recorded = 0
        self.passed = 0
        self.time = 0.0
        self.virtual_time = 0.0

    def status(self) -> int:
        if self._runtime.sticky:
            return self._runtime.sticky
        self._runtime.step()
        if self.passed == self.recorded:
            self._pass_time()
        return self._runtime.sticky or (0 if self.passed == self.recorded else NOT_READY)

    def block(self) -> None:
        ticket = self.recorded
        self._runtime.run_until(lambda: self.passed >= ticket)
        self._pass_time()

    def _pass_time(self) -> None:
        self._runtime.host_time = max(self._runtime.host_time, self.virtual_time)

    def milliseconds_after(self, earlier: FakeEvent) -> float:
        self._runtime.check()
        if self.passed < self.recorded or earlier.passed < earlier.recorded:
            raise CudaError(NOT_READY, "eventElapsedTime")
        return float(np.float32((self.time - earlier.time) * 1e3))


@dataclass
class FakeStream:
    """A queue of operations.

    A call raises late, when the host waits. The calls behind it, which the host would not have
    issued on a GPU, are then skipped (`poisoned`).

    Attributes
    ----------
    ignores_waits : bool
        Its waits are dropped, to show that tests detect a missing wait.
    """

    runtime: FakeGpu
    ignores_waits: bool = False
    queue: deque[tuple[Callable[[], bool], Callable[[], Steps]]] = field(default_factory=deque)
    """(whether the operation may start, its steps)."""
    running: Steps | None = None
    poisoned: bool = False
    time: float = 0.0
    """When its last operation ends on the virtual clock."""

    def copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self.runtime.count_operation()
        device, host = (target, source) if kind == TO_DEVICE else (source, target)
        device = self.runtime.host_address(device, nbytes)
        seconds = nbytes / self.runtime.copy_rate
        if kind == TO_DEVICE:
            self._push_timed("h2d", seconds, lambda: _copy_steps(device, host, nbytes))
        else:
            self._push_timed("d2h", seconds, lambda: _copy_steps(host, device, nbytes))
        if not self.runtime.is_pinned(host, nbytes):
            self._finish()

    def clear(self, address: int, nbytes: int) -> None:
        self.runtime.check()
        device = self.runtime.host_address(address, nbytes)
        self._push(lambda: _clear_steps(device, nbytes))

    def launch(self, call: Callable[[], None]) -> None:
        self.runtime.count_operation()
        seconds = self.runtime.kernel_seconds
        self._push_timed("kernel", seconds, lambda: self._call_steps(call))
        if self.runtime.kernels_block:
            self._finish()

    def record(self, event: FakeEvent) -> None:
        self.runtime.check()
        event.recorded += 1
        ticket = event.recorded
        self._push(lambda: self._record_steps(event, ticket))

    def wait(self, event: FakeEvent) -> None:
        """Wait for the latest record issued; return at once if there was none."""
        self.runtime.check()
        ticket = event.recorded
        if not self.ignores_waits:
            self._push(lambda: self._wait_steps(event), lambda: event.passed >= ticket)

    def is_idle(self) -> bool:
        return self.running is None and not self.queue

    def is_ready(self) -> bool:
        return self.running is not None or (bool(self.queue) and self.queue[0][0]())

    def advance(self) -> None:
        """Run one step of the first operation."""
        if self.running is None:
            self.running = self.queue.popleft()[1]()
        try:
            next(self.running)
        except StopIteration:
            self.running = None
            self.poisoned = self.poisoned and bool(self.queue)

    def _call_steps(self, call: Callable[[], None]) -> Steps:
        yield
        if not self.poisoned:
            self.poisoned = True
            call()
            self.poisoned = False

    def _record_steps(self, event: FakeEvent, ticket: int) -> Steps:
        event.passed = max(event.passed, ticket)
        event.time = time.monotonic()
        event.virtual_time = self.time
        yield from ()

    def _wait_steps(self, event: FakeEvent) -> Steps:
        self.time = max(self.time, event.virtual_time)
        yield from ()

    def _finish(self) -> None:
        """Have the host wait for all operations of this stream."""
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
        self.queue.append((is_ready, steps))


def _clear_steps(target: int, nbytes: int) -> Steps:
    ctypes.memset(target, POISON, nbytes)
    yield
    ctypes.memset(target, 0, nbytes)


def _copy_steps(target: int, source: int, nbytes: int) -> Steps:
    ctypes.memset(target, POISON, nbytes)
    yield
    ctypes.memmove(target, source, nbytes)
