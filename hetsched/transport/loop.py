"""One event loop: file descriptors, ZeroMQ sockets, timers, and calls from other threads.

Built on `zmq.Poller`, which takes both kinds of descriptor; asyncio between ZeroMQ sockets costs
three times the round trip. Single-threaded but for `call`, which any thread may use.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

log = logging.getLogger(__name__)

Callback = Callable[[], None]

LONGEST = 86400.0
"""Seconds of one poll at most: its C type holds no more than 24 days in milliseconds."""


class Loop:
    """Runs callbacks when descriptors become readable, when time has come, or when asked to."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._readers: dict[Any, Callback] = {}
        self._timers: list[tuple[float, int, Callback]] = []
        self._order = itertools.count()
        self._calls: deque[Callback] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Reentrant: the garbage collector may interrupt `call` and call it for a dead array.
        self._waking = threading.RLock()
        self._stopping = False
        self.reader(self._wake, self._drain)

    def reader(self, source: Any, callback: Callback) -> None:
        """Call `callback` whenever `source` (an fd or a ZeroMQ socket) is readable."""
        self._readers[source] = callback
        self._poller.register(source, zmq.POLLIN)

    def forget(self, source: Any) -> None:
        """No more callbacks for `source`; unknown ones are fine."""
        if self._readers.pop(source, None) is not None:
            self._poller.unregister(source)

    def later(self, seconds: float, callback: Callback) -> None:
        """Call `callback` once, `seconds` from now."""
        due = time.monotonic() + seconds
        heapq.heappush(self._timers, (due, next(self._order), callback))

    def call(self, callback: Callback) -> None:
        """Call `callback` on the loop's thread soon; not after `close`. Safe from any thread."""
        self._calls.append(callback)
        with self._waking:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def soon(self, callback: Callback) -> None:
        """Call `callback` when this round's events are dealt with. On the loop's thread only."""
        self._calls.append(callback)

    def stop(self) -> None:
        """Let `run` return after this round. Safe from any thread."""
        self.call(self._stop)

    def run(self) -> None:
        while not self._stopping:
            self._round()

    def close(self) -> None:
        self._readers.clear()
        with self._waking:  # the number may soon be another file's
            fd, self._wake = self._wake, -1
        if fd >= 0:
            os.close(fd)

    def _round(self) -> None:
        for source, _ in self._poller.poll(self._patience()):
            callback = self._readers.get(source)
            if callback is not None:
                _guarded(callback)
        self._run_timers()
        for _ in range(len(self._calls)):
            _guarded(self._calls.popleft())

    def _patience(self) -> int:
        """Milliseconds that the poll may last: rounded up, or a due timer would spin."""
        if self._calls:
            return 0
        if not self._timers:
            return -1
        wait = min(self._timers[0][0] - time.monotonic(), LONGEST)
        return max(0, int(wait * 1000) + 1)

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _guarded(heapq.heappop(self._timers)[2])

    def _drain(self) -> None:
        os.eventfd_read(self._wake)

    def _stop(self) -> None:
        self._stopping = True


def _guarded(callback: Callback) -> None:
    """A callback's own error must not end the loop that serves everybody else."""
    try:
        callback()
    except Exception:
        log.exception("unexpected error in a callback; the loop goes on")
