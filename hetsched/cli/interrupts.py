"""Ctrl-C that isn't lost if it interrupts an import that swallows exceptions."""

from __future__ import annotations

import signal
import threading
from types import FrameType

_interrupt_seen = threading.Event()


def install_handler() -> None:
    """Note every Ctrl-C from now on, and raise KeyboardInterrupt as Python does. For main()."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default and threading.current_thread() is threading.main_thread():
        _interrupt_seen.clear()
        signal.signal(signal.SIGINT, _on_interrupt)


def reraise() -> None:
    """Raise the KeyboardInterrupt that an import swallowed, if there was one."""
    if _interrupt_seen.is_set():
        raise KeyboardInterrupt


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    _interrupt_seen.set()
    raise KeyboardInterrupt
