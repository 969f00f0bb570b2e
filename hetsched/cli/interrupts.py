"""Ctrl-C that is never lost: what is imported just then may swallow it."""

from __future__ import annotations

import signal
import threading
from types import FrameType

_seen = threading.Event()


def remember() -> None:
    """From now on note Ctrl-C, beside raising KeyboardInterrupt as Python does. In main() only."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual and threading.current_thread() is threading.main_thread():
        _seen.clear()
        signal.signal(signal.SIGINT, _interrupted)


def check() -> None:
    """Raise the KeyboardInterrupt that was swallowed, if there was one."""
    if _seen.is_set():
        raise KeyboardInterrupt


def _interrupted(number: int, frame: FrameType | None) -> None:
    _seen.set()
    raise KeyboardInterrupt
