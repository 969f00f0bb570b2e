"""One event loop: file descriptors, ZeroMQ sockets, timers, and calls from other threads.

Method names follow asyncio's. Built on `zmq.Poller`, which accepts both kinds of source; with
asyncio a round trip between ZeroMQ sockets takes three times as long. Single-threaded, except
`call_soon_threadsafe` and `stop`. Callbacks must not block: `latency` measures what they cost
each other, and the log names those that are slow.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

from hetsched.transport.event_loop.loop_latency import LoopLatency, callback_name
from hetsched.transport.event_loop.signal_wakeup import SignalWakeup
from hetsched.transport.timers import Timer, TimerQueue

log = logging.getLogger(__name__)

Callback = Callable[[], None]

MAX_POLL_SECONDS = 86400.0
"""Longest poll: its C type holds at most 24 days in milliseconds."""
SLOW_CALLBACK_SECONDS = 0.1
"""A callback that takes longer is logged: meanwhile, no client was served. Arbitrary."""
SLOW_LOG_SECONDS = 1.0
"""Least time between two of these messages. Arbitrary."""
IMMEDIATE_SECONDS = 20e-6
"""A poll that takes less found its events: they may have come at any time since the last poll."""


class Loop:
    """Runs callbacks when descriptors become readable, when timers expire, and on request."""

    def __init__(self, slow_level: int = logging.WARNING) -> None:
        self._slow_level = slow_level
        self._poller = zmq.Poller()
        self._readers: dict[Any, Callback] = {}
        self._timers = TimerQueue()
        self._calls: deque[tuple[float, Callback]] = deque()
        self._last_calls: deque[tuple[float, Callback]] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Reentrant: the garbage collector may interrupt a call and make one for a freed array.
        self._wake_lock = threading.RLock()
        self._stopping = False
        self._signals: SignalWakeup | None = None
        self.latency = LoopLatency()
        self._polled_at = time.monotonic()
        self._next_slow_log = 0.0
        self.add_reader(self._wake_fd, self._clear_wake)

    def add_reader(self, source: Any, callback: Callback) -> None:
        """Call `callback` whenever `source` (an fd or a ZeroMQ socket) is readable."""
        self._readers[source] = callback
        self._poller.register(source, zmq.POLLIN)

    def remove_reader(self, source: Any) -> None:
        """Stop watching `source`; unknown sources are ignored."""
        if self._readers.pop(source, None) is not None:
            self._poller.unregister(source)

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Call `callback` once, `seconds` from now, unless the timer is cancelled before."""
        return self._timers.add(time.monotonic() + seconds, callback)

    def on_signal(self, number: int, callback: Callback) -> None:
        """Call `callback` whenever the process receives signal `number`, until `close`.

        Only on the main thread. No signal is lost, however busy or idle the loop is; several of a
        kind in quick succession may become one call.
        """
        if self._signals is None:
            self._signals = SignalWakeup()
            self.add_reader(self._signals.fileno(), self._on_signals)
        self._signals.add(number, callback)

    def call_soon(self, callback: Callback) -> None:
        """Call `callback` after this round's events. Only on the loop's thread."""
        self._calls.append((time.monotonic(), callback))

    def call_last(self, callback: Callback) -> None:
        """Call `callback` at the end of this round, after the calls that are already due.

        For what wakes others on this thread's core, and is less urgent than the round's work.
        Only on the loop's thread.
        """
        self._last_calls.append((time.monotonic(), callback))

    def call_soon_threadsafe(self, callback: Callback) -> None:
        """Call `callback` on the loop's thread soon, from any thread. Ignored after `close`."""
        self._calls.append((time.monotonic(), callback))
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
        """Release the descriptors and restore signal handlers; no further callbacks run."""
        self._readers.clear()
        if self._signals is not None:
            self._signals.close()
            self._signals = None
        with self._wake_lock:  # the number may be reused for another file
            fd, self._wake_fd = self._wake_fd, -1
        if fd >= 0:
            os.close(fd)

    def _run_round(self) -> None:
        before = time.monotonic()
        events = self._poller.poll(self._poll_timeout_ms(before))
        now = time.monotonic()
        ready = now if now - before > IMMEDIATE_SECONDS else self._polled_at
        self._polled_at = now
        for source, _ in events:
            callback = self._readers.get(source)
            if callback is not None:
                now = self._run_callback(callback, ready, now)
        now = self._run_timers(now)
        for calls in (self._calls, self._last_calls):
            for _ in range(len(calls)):
                called_at, callback = calls.popleft()
                now = self._run_callback(callback, called_at, now)

    def _poll_timeout_ms(self, now: float) -> int:
        """Return milliseconds, rounded up: otherwise the loop would spin until a timer is due."""
        if self._calls or self._last_calls:
            return 0
        due = self._timers.next_due()
        if due is None:
            return -1
        seconds = min(due - now, MAX_POLL_SECONDS)
        return max(0, int(seconds * 1000) + 1)

    def _run_timers(self, now: float) -> float:
        """Run the timers due by `now`, not those that they add. Return the time afterwards."""
        due_by = now
        while (timer := self._timers.pop_due(due_by)) is not None:
            due, callback = timer
            now = self._run_callback(callback, due, now)
        return now

    def _run_callback(self, callback: Callback, due: float, now: float) -> float:
        """Call `callback`; log its error instead of ending the loop, which serves everything else.

        Returns the time afterwards.
        """
        try:
            callback()
        except Exception:
            log.exception("unexpected error in a callback; the loop continues")
        ended = time.monotonic()
        self.latency.record(now - due, ended - now, callback)
        if ended - now > SLOW_CALLBACK_SECONDS and ended >= self._next_slow_log:
            self._next_slow_log = ended + SLOW_LOG_SECONDS
            log.log(
                self._slow_level,
                "the event loop was blocked for %.0f ms by %s",
                (ended - now) * 1000,
                callback_name(callback),
            )
        return ended

    def _on_signals(self) -> None:
        if self._signals is not None:
            for callback in self._signals.take_callbacks():
                self.call_soon(callback)

    def _clear_wake(self) -> None:
        os.eventfd_read(self._wake_fd)

    def _stop(self) -> None:
        self._stopping = True
