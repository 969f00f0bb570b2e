"""One event loop: file descriptors, ZeroMQ sockets, timers, and calls from other threads.

Method names follow asyncio's. Built on `zmq.Poller`, which accepts both kinds of source; with
asyncio a round trip between ZeroMQ sockets takes three times as long. Single-threaded, except
`call_soon_threadsafe` and `stop`.
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

MAX_POLL_SECONDS = 86400.0
"""Longest poll: its C type holds at most 24 days in milliseconds."""


class Loop:
    """Runs callbacks when descriptors become readable, when timers expire, and on request."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._readers: dict[Any, Callback] = {}
        self._timers: list[tuple[float, int, Callback]] = []
        self._timer_numbers = itertools.count()
        self._calls: deque[Callback] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Reentrant: the garbage collector may interrupt a call and make one for a freed array.
        self._wake_lock = threading.RLock()
        self._stopping = False
        self.add_reader(self._wake_fd, self._clear_wake)

    def add_reader(self, source: Any, callback: Callback) -> None:
        """Call `callback` whenever `source` (an fd or a ZeroMQ socket) is readable."""
        self._readers[source] = callback
        self._poller.register(source, zmq.POLLIN)

    def remove_reader(self, source: Any) -> None:
        """Stop watching `source`; unknown sources are ignored."""
        if self._readers.pop(source, None) is not None:
            self._poller.unregister(source)

    def call_later(self, seconds: float, callback: Callback) -> None:
        """Call `callback` once, `seconds` from now."""
        due = time.monotonic() + seconds
        heapq.heappush(self._timers, (due, next(self._timer_numbers), callback))

    def call_soon(self, callback: Callback) -> None:
        """Call `callback` after this round's events. Only on the loop's thread."""
        self._calls.append(callback)

    def call_soon_threadsafe(self, callback: Callback) -> None:
        """Call `callback` on the loop's thread soon, from any thread. Ignored after `close`."""
        self._calls.append(callback)
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def stop(self) -> None:
        """Make `run` return after this round. Safe from any thread."""
        self.call_soon_threadsafe(self._stop)

    def run(self) -> None:
        """Run callbacks until `stop`."""
        while not self._stopping:
            self._run_round()

    def close(self) -> None:
        """Release the descriptor; no further callbacks run."""
        self._readers.clear()
        with self._wake_lock:  # the number may be reused for another file
            fd, self._wake_fd = self._wake_fd, -1
        if fd >= 0:
            os.close(fd)

    def _run_round(self) -> None:
        for source, _ in self._poller.poll(self._poll_timeout_ms()):
            callback = self._readers.get(source)
            if callback is not None:
                _run_guarded(callback)
        self._run_timers()
        for _ in range(len(self._calls)):
            _run_guarded(self._calls.popleft())

    def _poll_timeout_ms(self) -> int:
        """Return milliseconds, rounded up: otherwise the loop would spin until a timer is due."""
        if self._calls:
            return 0
        if not self._timers:
            return -1
        seconds = min(self._timers[0][0] - time.monotonic(), MAX_POLL_SECONDS)
        return max(0, int(seconds * 1000) + 1)

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _run_guarded(heapq.heappop(self._timers)[2])

    def _clear_wake(self) -> None:
        os.eventfd_read(self._wake_fd)

    def _stop(self) -> None:
        self._stopping = True


def _run_guarded(callback: Callback) -> None:
    """Call `callback`; log its error instead of ending the loop, which serves everything else."""
    try:
        callback()
    except Exception:
        log.exception("unexpected error in a callback; the loop continues")
