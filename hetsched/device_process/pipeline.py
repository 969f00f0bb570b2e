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
from hetsched.transport.device_messages import ChunksDone, DoneChunk

MAX_REPORT_SECONDS = 0.25
"""No chunk is reported later than that, as far as the next one can be predicted. If the process
dies, so much is computed again."""


class ChunkReports:
    """The finished chunks of one attempt that the engine hasn't heard of.

    Parameters
    ----------
    gathers : bool
        False: report each at once, as for a device with copies in flight, whose queue must not
        run dry.
    """

    def __init__(self, attempt: int, send: Callable[[ChunksDone], None], *, gathers: bool) -> None:
        self._attempt = attempt
        self._send = send
        self._gathers = gathers
        self._done: list[DoneChunk] = []
        self._since = 0.0
        """The start of the first of them."""
        self._level = 0
        """Chunks that the device had when the engine last sent some or heard of some."""

    def added(self, queued: int) -> None:
        """Note that the device now has `queued` chunks."""
        self._level = queued

    def finish(self, chunk: Chunk, times: ChunkTimes, queued: int, *, has_tail: bool) -> None:
        """Report a chunk, now or with later ones: at the latest when the queue is half empty.

        `has_tail`: the device goes on by itself, whatever is in its queue.
        """
        start, end = times.start, times.end
        if not self._done:
            self._since = start
        self._done.append(DoneChunk(chunk.id, chunk.first, chunk.count, times))
        is_low = not has_tail and 2 * queued <= self._level
        next_end = end + (end - start)  # if the next one takes as long
        is_due = times.cold or next_end - self._since >= MAX_REPORT_SECONDS
        if not self._gathers or is_low or is_due:
            self._level = queued
            self.flush()

    def flush(self, *, has_left: bool = False) -> None:
        """Report everything; `has_left` as in ChunksDone."""
        done, self._done = tuple(self._done), []
        if done or has_left:
            self._send(ChunksDone(self._attempt, done, has_left))


ONLY_SLOT = Slot(0, 0)
"""Of a device in the host's memory."""


class ChunkFailed(Exception):
    """`chunk` failed, with the reason as ``__cause__``; no chunk is in flight."""

    def __init__(self, chunk: Chunk) -> None:
        super().__init__(chunk.id)
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
    def busy(self) -> bool:
        """Whether any chunk is queued or in flight."""
        return bool(self._waiting or self._in_flight)

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
        ChunkFailed
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
            with contextlib.suppress(ChunkFailed):
                self._finish()

    def _start(self, chunk: Chunk) -> None:
        slot = self._free_slot(chunk)
        try:
            self._device.copy_in(chunk, slot)
            self._device.compute(chunk, slot)
            self._device.copy_out(chunk, slot)
        except BaseException as error:
            self._raise_failure(chunk, error)
        self._in_flight.append(chunk)

    def _free_slot(self, chunk: Chunk) -> Slot:
        if self._slots is None:
            return ONLY_SLOT
        try:
            slot, needs_idle = self._slots.allocate(chunk.count, chunk.barrier)
        except BaseException as error:
            self._raise_failure(chunk, error)
        while needs_idle and self._in_flight:
            self._finish()
        return slot

    def _finish(self) -> None:
        chunk = self._in_flight.popleft()
        try:
            times = self._device.wait(chunk)
        except BaseException as error:
            self._raise_failure(chunk, error)
        self._on_done(chunk, times)

    def _raise_failure(self, chunk: Chunk, error: BaseException) -> NoReturn:
        """Raise `error` as ChunkFailed, after the other chunks in flight have finished.

        Including SystemExit and KeyboardInterrupt, which a kernel may raise, too.
        """
        if isinstance(error, ChunkFailed | DeviceFault):
            raise error
        self.drain()
        raise ChunkFailed(chunk) from error
