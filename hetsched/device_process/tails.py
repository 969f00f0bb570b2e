"""The tail of a job that several cores share: each takes chunks without asking the engine."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hetsched.device import Chunk, TailPart
from hetsched.plans.shared_tail import TAIL_CHUNK_ID

TAIL_BYTES = mmap.PAGESIZE
"""Of the memfd of a group of cores."""
_RECORD = struct.Struct("=qq")
"""The attempt whose tail it is, and its next unit."""
_threads = threading.Lock()


class TailCounter:
    """The next unit of a tail, in memory that all its cores have mapped.

    One attempt at a time has a tail: the first core that takes from a later one resets the
    counter. A file lock excludes other processes, since the kernel releases it when its holder
    dies, and a lock of this process other threads: file locks don't.
    """

    def __init__(self, fd: int) -> None:
        """Take ownership of `fd`."""
        self._fd = fd
        self._memory = mmap.mmap(fd, TAIL_BYTES)

    def __del__(self) -> None:
        os.close(self._fd)

    def take(self, attempt: int, part: TailPart) -> tuple[int, int] | None:
        """Take a chunk by the rule of `part`: (first, count); None if nothing remains."""
        with self._locked():
            first = self._next(attempt, part)
            count = part.units_to_take(part.first + part.units - first)
            if not count:
                return None
            _RECORD.pack_into(self._memory, 0, attempt, first + count)
            return first, count

    def is_empty(self, attempt: int, part: TailPart) -> bool:
        with self._locked():
            return self._next(attempt, part) >= part.first + part.units

    def _next(self, attempt: int, part: TailPart) -> int:
        owner, next_unit = _RECORD.unpack_from(self._memory)
        if owner < attempt:
            return part.first
        # A later attempt has begun, so this one has ended: nothing remains.
        return int(next_unit) if owner == attempt else part.first + part.units

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with _threads:
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)


class DeviceTail:
    """One device's access to the tail of an attempt.

    Attributes
    ----------
    is_open : bool
        The device may take chunks: its own ones have all been sent, and units may remain.
    """

    def __init__(self, counter: TailCounter, attempt: int, part: TailPart) -> None:
        self.is_open = False
        self._counter = counter
        self._attempt = attempt
        self._part = part

    def take(self) -> Chunk | None:
        """Take the next chunk; None if nothing remains: the device has left the tail."""
        taken = self._counter.take(self._attempt, self._part)
        if taken is None:
            self.is_open = False
            return None
        return Chunk(TAIL_CHUNK_ID, *taken, last=True)

    def leave_if_empty(self) -> bool:
        """Leave the tail if nothing remains; return whether that is so."""
        self.is_open = not self._counter.is_empty(self._attempt, self._part)
        return not self.is_open
