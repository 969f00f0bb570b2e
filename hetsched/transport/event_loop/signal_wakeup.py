"""Signals as callbacks of the event loop: none is lost, whatever the loop is doing.

A handler in Python alone isn't enough. It runs between two bytecodes of the main thread: a signal
that arrives after the last of them, just before the loop's poll, or in another thread, interrupts
nothing, and the handler waits for the next event, which may never come. So the C handler writes
the signal's number into a pipe that the loop reads (`signal.set_wakeup_fd`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

Callback = Callable[[], None]


class SignalWakeup:
    """The pipe and the handlers of one process. Only on the main thread; `close` restores all."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._callbacks: dict[int, Callback] = {}
        self._previous_handlers: dict[int, Any] = {}
        # A full pipe holds thousands of signals that are still to be handled: no warning.
        self._previous_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Return the descriptor that is readable after a signal."""
        return self._read_fd

    def add(self, number: int, callback: Callback) -> None:
        """Return `callback` for signal `number` from now on, instead of an earlier callback."""
        self._callbacks[number] = callback
        previous = signal.signal(number, _do_nothing)
        self._previous_handlers.setdefault(number, previous)

    def take_callbacks(self) -> list[Callback]:
        """Return the callbacks of the signals since the last call, in order.

        Several signals of a kind that have arrived since then are one.
        """
        numbers = dict.fromkeys(self._read())
        return [self._callbacks[number] for number in numbers if number in self._callbacks]

    def close(self) -> None:
        """Restore the previous handlers and close the pipe."""
        for number, handler in self._previous_handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous_handlers.clear()
        signal.set_wakeup_fd(self._previous_fd)
        os.close(self._read_fd)
        os.close(self._write_fd)

    def _read(self) -> bytes:
        try:
            return os.read(self._read_fd, 4096)
        except BlockingIOError:
            return b""


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Replace the default action; the pipe has the signal."""
