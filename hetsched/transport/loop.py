"""The event loop: asyncio's, which also reads ZeroMQ sockets."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from asyncio import TimerHandle as Timer
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple

import zmq

__all__ = ["Loop", "Timer"]

log = logging.getLogger(__name__)

_Args = TypeVarTuple("_Args")
_POLLIN = int(zmq.POLLIN)  # operations on flags take several calls

SLOW_CALLBACK_SECONDS = 0.1
"""A callback that takes longer is logged: meanwhile, no client was served."""
SLOW_LOG_SECONDS = 1.0
"""Least time between two of these messages."""


class Loop(asyncio.SelectorEventLoop):
    """Goes on when a callback raises, and names slow callbacks in the log, at `slow_level`."""

    def __init__(self, slow_level: int = logging.WARNING) -> None:
        super().__init__()
        self.longest_callback = 0.0  # Seconds that the slowest one took
        self._slow_level = slow_level
        self._next_slow_log = 0.0
        self._sockets: dict[zmq.Socket[Any], Callable[[], Any]] = {}

    def stop(self) -> None:
        """Make `run_forever` return after this round. Safe from any thread."""
        self.call_soon_threadsafe(super().stop)

    def add_reader(self, fd: Any, callback: Callable[[*_Args], object], *args: *_Args) -> None:
        """Also watch a ZeroMQ socket; after a message was sent on it, call `recheck`."""
        if isinstance(fd, zmq.Socket):
            self._sockets[fd] = functools.partial(callback, *args)
            super().add_reader(int(fd.getsockopt(zmq.FD)), self._read, fd)
            self.recheck(fd)
        else:
            super().add_reader(fd, self._call, callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        if isinstance(fd, zmq.Socket):
            if self._sockets.pop(fd, None) is None:
                return False
            fd = int(fd.getsockopt(zmq.FD))
        return fd >= 0 and super().remove_reader(fd)

    def recheck(self, source: zmq.Socket[Any]) -> None:
        """Look whether `source` is readable.

        Its descriptor becomes readable once when the socket's state changes, and whatever is done
        with the socket then, a send too, may consume that.
        """
        if source in self._sockets and _is_readable(source):
            super().call_soon(self._read, source)

    def call_soon(
        self, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._call, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Args], object],
        *args: *_Args,
        context: Context | None = None,
    ) -> Timer:
        return super().call_at(when, self._call, callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        """Call `callback` soon, from any thread. Ignored after `close`."""
        try:
            return super().call_soon_threadsafe(self._call, callback, *args, context=context)
        except RuntimeError:  # closed, perhaps just now
            return asyncio.Handle(callback, args, self)

    def _read(self, source: zmq.Socket[Any]) -> None:
        callback = self._sockets.get(source)
        if callback is None or not _is_readable(source):
            return
        self._call(callback)
        if not source.closed:
            self.recheck(source)

    def _call(self, callback: Callable[[*_Args], object], *args: *_Args) -> None:
        started = time.monotonic()
        try:
            callback(*args)
        except Exception:
            log.exception("unexpected error in a callback; the loop continues")
        ended = time.monotonic()
        if ended - started > min(self.longest_callback, SLOW_CALLBACK_SECONDS):
            self._note_slow(callback, ended - started, ended)

    def _note_slow(self, callback: Callable[..., Any], seconds: float, now: float) -> None:
        self.longest_callback = max(self.longest_callback, seconds)
        if seconds > SLOW_CALLBACK_SECONDS and now >= self._next_slow_log:
            self._next_slow_log = now + SLOW_LOG_SECONDS
            while isinstance(callback, functools.partial):
                callback = callback.func
            owner = getattr(callback, "__self__", None)
            named = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
            name = getattr(named, "__qualname__", type(named).__qualname__)
            text = "the event loop was blocked for %.0f ms by %s"
            log.log(self._slow_level, text, 1000 * seconds, name)


def _is_readable(source: zmq.Socket[Any]) -> bool:
    return bool(int(source.getsockopt(zmq.EVENTS)) & _POLLIN)
