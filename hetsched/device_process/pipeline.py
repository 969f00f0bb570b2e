"""The pipeline of chunks through one device of any kind.

A bounded number of chunks is in flight. Slots come from `plans.slot_allocation`. The device orders
its own operations, except where the allocator requires that no chunk is in flight.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import NoReturn

from hetsched.device import Chunk, ChunkTimes, Slot
from hetsched.devices.base import Device, DeviceFault
from hetsched.plans.slot_allocation import SlotAllocator

ONLY_SLOT = Slot(0, 0)
"""Of a device in the host's memory."""


class StepFailed(Exception):
    """A job can't go on, with the reason as ``__cause__``; `chunk` failed, and none is in flight.

    None: something else than a chunk failed.
    """

    def __init__(self, chunk: Chunk | None = None) -> None:
        super().__init__(chunk)
        self.chunk = chunk


class Pipeline:
    """The chunks of one run on one device.

    Parameters
    ----------
    slots : SlotAllocator or None
        None: the device works in the host's memory.
    depth : int
        Maximum number of chunks in flight: 1 for a synchronous device; with overlap one more than
        the slots, but at most the window.
    on_done : callable
        Called with each finished chunk, in order.
    """

    def __init__(
        self,
        device: Device,
        slots: SlotAllocator | None,
        depth: int,
        on_done: Callable[[Chunk, ChunkTimes], None],
    ) -> None:
        self._device = device
        self._slots = slots
        self._depth = depth
        self._on_done = on_done
        self._waiting: deque[Chunk] = deque()
        self._in_flight: deque[Chunk] = deque()

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Queue chunks."""
        self._waiting.extend(chunks)

    @property
    def pending(self) -> int:
        """Chunks that are queued or in flight."""
        return len(self._waiting) + len(self._in_flight)

    @property
    def expects_more(self) -> bool:
        """Whether further chunks are announced and could start before the oldest finishes."""
        if self._waiting or not self._in_flight:
            return False
        return len(self._in_flight) < self._depth - 1 and not self._in_flight[-1].last

    def step(self) -> None:
        """Start the next chunk if there is room for one, else wait for the oldest.

        A chunk that leaves no room for another is started and finished at once.

        Raises
        ------
        StepFailed
            The others in flight have finished, and the successful ones were reported.
        DeviceFault
        """
        if self._waiting and len(self._in_flight) < self._depth:
            self._start(self._waiting.popleft())
            if self._depth > 1:
                return
        if self._in_flight:
            self._finish()

    def drain(self) -> None:
        """Drop queued chunks and finish those in flight. Raises DeviceFault."""
        self._waiting.clear()
        while self._in_flight:
            with contextlib.suppress(StepFailed):
                self._finish()

    def _start(self, chunk: Chunk) -> None:
        slot, needs_idle = ONLY_SLOT, False
        try:
            if self._slots is not None:
                slot, needs_idle = self._slots.allocate(chunk.count, chunk.barrier)
        except BaseException as error:
            self._raise_failure(chunk, error)
        while needs_idle and self._in_flight:
            self._finish()
        try:
            self._device.copy_in(chunk, slot)
            self._device.compute(chunk, slot)
            self._device.copy_out(chunk, slot)
        except BaseException as error:
            self._raise_failure(chunk, error)
        self._in_flight.append(chunk)

    def _finish(self) -> None:
        chunk = self._in_flight.popleft()
        try:
            times = self._device.wait(chunk)
        except BaseException as error:
            self._raise_failure(chunk, error)
        self._on_done(chunk, times)

    def _raise_failure(self, chunk: Chunk, error: BaseException) -> NoReturn:
        """Raise `error` as StepFailed, after the other chunks in flight have finished.

        Including SystemExit and KeyboardInterrupt, which a kernel may raise, too.
        """
        if isinstance(error, StepFailed | DeviceFault):
            raise error
        self.drain()
        raise StepFailed(chunk) from error
