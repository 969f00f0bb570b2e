"""Shared tails in a device process: its threads take chunks of a job's tail without the engine."""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from hetsched.device import Chunk, TailPart
from hetsched.plans.shared_tail import TAIL_CHUNK_ID, TailCounter


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


class DeviceTail:
    """One device's access to the tail of a job that it holds.

    Attributes
    ----------
    is_open : bool
        The device may take chunks: its own ones have all been sent, and units remain.
    """

    def __init__(self, counter: LockedCounter, part: TailPart) -> None:
        self.is_open = False
        self._counter = counter
        self._part = part

    def take(self) -> Chunk | None:
        """Take the next chunk; None if nothing remains, which closes the tail for the device."""
        taken = self._counter.take(self._part)
        if taken is None:
            self.is_open = False
            return None
        return Chunk(TAIL_CHUNK_ID, *taken, last=True)


class SharedTails:
    """The tails of the jobs that the devices of this process hold. Used by all their threads.

    A tail exists as long as a device holds its job.
    """

    def __init__(self) -> None:
        self._counters: WeakValueDictionary[int, LockedCounter] = WeakValueDictionary()
        self._lock = threading.Lock()

    def join(self, job: int, part: TailPart) -> DeviceTail:
        """Return a device's access to the tail of `job`, which the first one creates."""
        with self._lock:
            counter = self._counters.get(job)
            if counter is None:
                counter = self._counters[job] = LockedCounter(part)
        return DeviceTail(counter, part)
