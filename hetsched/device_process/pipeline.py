"""Runs a stream of chunks over one device, of whatever kind: the same code for all of them.

A bounded number of chunks is in flight. Slots come from `schedule.layout`; the device orders its
operations itself, except where the layout says that all in flight must be through first.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from hetsched.device import Chunk, ChunkTimes
from hetsched.devices.base import Device, DeviceFault
from hetsched.plans.slot_allocation import SlotAllocator


class ChunkFailed(Exception):
    """`chunk` failed, for the reason in ``__cause__``; nothing is in flight any more."""

    def __init__(self, chunk: Chunk) -> None:
        super().__init__(chunk.id)
        self.chunk = chunk


class Pipeline:
    """The chunks of one run on one device.

    Parameters
    ----------
    layout : SlotAllocator
    depth : int
        Chunks in flight at most: one for a device that works while it is called; where copies and
        computations overlap one more than there are slots, but no more than are sent ahead.
    done : callable
        Called with each chunk that is through, in order.
    """

    def __init__(
        self,
        device: Device,
        layout: SlotAllocator,
        depth: int,
        done: Callable[[Chunk, ChunkTimes], None],
    ) -> None:
        self._device = device
        self._layout = layout
        self._depth = depth
        self._done = done
        self._waiting: deque[Chunk] = deque()
        self._flying: deque[Chunk] = deque()

    def add(self, chunks: Iterable[Chunk]) -> None:
        self._waiting.extend(chunks)

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._flying)

    @property
    def expects_more(self) -> bool:
        """More chunks are on their way, and there is room for them in front of the oldest."""
        if self._waiting or not self._flying:
            return False
        return len(self._flying) < self._depth - 1 and not self._flying[-1].last

    def step(self) -> None:
        """Start one chunk if there is one and room for it, else wait for the oldest.

        Raises
        ------
        ChunkFailed
            All others that were in flight have ended, and those that went well were told.
        DeviceFault
        """
        if self._waiting and len(self._flying) < self._depth:
            self._start(self._waiting.popleft())
        elif self._flying:
            self._finish()

    def drain(self) -> None:
        """Start nothing more; wait for what is in flight, tell what went well. DeviceFault."""
        self._waiting.clear()
        while self._flying:
            with contextlib.suppress(ChunkFailed):
                self._finish()

    def _start(self, chunk: Chunk) -> None:
        with self._blame(chunk):
            slot, alone = self._layout.allocate(chunk.count, chunk.barrier)
        while alone and self._flying:
            self._finish()
        with self._blame(chunk):
            self._device.copy_in(chunk, slot)
            self._device.compute(chunk, slot)
            self._device.copy_out(chunk, slot)
        self._flying.append(chunk)

    def _finish(self) -> None:
        chunk = self._flying.popleft()
        with self._blame(chunk):
            times = self._device.wait(chunk)
        self._done(chunk, times)

    @contextlib.contextmanager
    def _blame(self, chunk: Chunk) -> Iterator[None]:
        """An error of `chunk` ends the run: what else is in flight is waited for first."""
        try:
            yield
        except (ChunkFailed, DeviceFault):
            raise
        except Exception as error:
            self.drain()
            raise ChunkFailed(chunk) from error
