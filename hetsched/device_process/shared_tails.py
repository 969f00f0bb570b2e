"""Shared tails in a device process: its threads take chunks of a job's tail without the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from weakref import WeakValueDictionary

from hetsched.device import Chunk, ChunkTimes, TailPart
from hetsched.plans.shared_tail import TAIL_CHUNK_ID, TailCounter
from hetsched.transport.device_messages import TakenChunk

MAX_REPORT_SECONDS = 0.08
"""Chunks that took longer than this since the last report are reported at once: short ones wait
for others. Arbitrary; as long as a core's longest chunk otherwise."""

Report = Callable[[tuple[TakenChunk, ...], bool], None]
"""Sends chunks that a device has computed; and whether it has left the tail."""


class LockedCounter:
    """A tail's counter for several threads.

    Taking a chunk is a few additions, so threads wait for each other for less than a microsecond
    of the interpreter's time; kernels run without the interpreter's lock and without this one.
    """

    def __init__(self, part: TailPart) -> None:
        self._counter = TailCounter(part.first, part.units)
        self._lock = threading.Lock()

    def take(self, part: TailPart) -> tuple[int, int] | None:
        """Take a chunk by the rule of `part`, as `TailCounter.take`."""
        with self._lock:
            return self._counter.take(part)

    @property
    def is_empty(self) -> bool:
        return not self._counter.remaining


class DeviceTail:
    """One device's access to the tail of a job that it holds.

    Attributes
    ----------
    is_open : bool
        The device may take chunks: its own ones have all been sent, and units remain.
    """

    def __init__(self, counter: LockedCounter, part: TailPart, report: Report) -> None:
        self.is_open = False
        self._counter = counter
        self._part = part
        self._report = report
        self._done: list[TakenChunk] = []

    def take(self) -> Chunk | None:
        """Take the next chunk; None if nothing remains: the device has left the tail."""
        taken = self._counter.take(self._part)
        if taken is None:
            self._leave()
            return None
        return Chunk(TAIL_CHUNK_ID, *taken, last=True)

    def finish(self, chunk: Chunk, times: ChunkTimes) -> None:
        """Report a finished chunk, now or with later ones."""
        self._done.append(TakenChunk(chunk.first, chunk.count, times))
        if self._counter.is_empty:
            self._leave()  # at once: another job may come before the next chunk would be taken
        elif times.end - self._done[0].times.start >= MAX_REPORT_SECONDS:
            self._send(has_left=False)

    def _leave(self) -> None:
        self.is_open = False
        self._send(has_left=True)

    def _send(self, *, has_left: bool) -> None:
        done, self._done = tuple(self._done), []
        self._report(done, has_left)


class SharedTails:
    """The tails of the jobs that the devices of this process hold. Used by all their threads.

    A tail exists as long as a device holds its job.
    """

    def __init__(self) -> None:
        self._counters: WeakValueDictionary[int, LockedCounter] = WeakValueDictionary()
        self._lock = threading.Lock()

    def join(self, job: int, part: TailPart, report: Report) -> DeviceTail:
        """Return a device's access to the tail of `job`, which the first one creates."""
        with self._lock:
            counter = self._counters.get(job)
            if counter is None:
                counter = self._counters[job] = LockedCounter(part)
        return DeviceTail(counter, part, report)
