"""Shared tails in a device process: its threads take chunks of a job's tail without the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from weakref import WeakValueDictionary

from hetsched.device import Chunk, ChunkTimes, TailPart
from hetsched.plans.shared_tail import TAIL_CHUNK_ID, TailCounter
from hetsched.transport.device_messages import OwnChunk, TakenChunk

MAX_REPORT_SECONDS = 0.25
"""Chunks that took longer than this since the last report are reported at once: short ones wait
for others, since a report costs the engine a third of a millisecond on a core that computes. If
the process dies, so much is computed again. Arbitrary."""

Report = Callable[[tuple[OwnChunk, ...], tuple[TakenChunk, ...], bool], None]
"""Sends chunks that a device was sent, and those that it took; and whether it has left the tail.
"""


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
        self._own: list[OwnChunk] = []
        self._done: list[TakenChunk] = []
        self._since: float | None = None
        """The start of the first chunk that hasn't been reported."""

    def take(self) -> Chunk | None:
        """Take the next chunk; None if nothing remains: the device has left the tail."""
        taken = self._counter.take(self._part)
        if taken is None:
            self._leave()
            return None
        return Chunk(TAIL_CHUNK_ID, *taken, last=True)

    def finish_own(self, chunk: Chunk, times: ChunkTimes) -> None:
        """Report a chunk that the device was sent, once there are no others to send: the tail is
        open. Now or with later ones, as `finish`.
        """
        self._own.append(OwnChunk(chunk.id, times))
        self._send_if_due(times)

    def finish(self, chunk: Chunk, times: ChunkTimes) -> None:
        """Report a finished chunk of the tail, now or with later ones."""
        self._done.append(TakenChunk(chunk.first, chunk.count, times))
        if self._counter.is_empty:
            self._leave()  # at once: another job may come before the next chunk would be taken
        else:
            self._send_if_due(times)

    def _send_if_due(self, times: ChunkTimes) -> None:
        if self._since is None:
            self._since = times.start
        if times.end - self._since >= MAX_REPORT_SECONDS:
            self._send(has_left=False)

    def _leave(self) -> None:
        self.is_open = False
        self._send(has_left=True)

    def _send(self, *, has_left: bool) -> None:
        own, self._own = tuple(self._own), []
        done, self._done = tuple(self._done), []
        self._since = None
        self._report(own, done, has_left)


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
