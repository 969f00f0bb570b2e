"""Ctrl-C that isn't lost where Python ignores exceptions: some imports, and destructors."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

REPEAT_SECONDS = 0.01
"""Until a Ctrl-C that a destructor lost is repeated: the destructor should have ended by then."""

_interrupt_seen = threading.Event()


def install_handler() -> None:
    """Note every Ctrl-C from now on, and raise KeyboardInterrupt as Python does. For main()."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default and threading.current_thread() is threading.main_thread():
        _interrupt_seen.clear()
        signal.signal(signal.SIGINT, _on_interrupt)
        _repeat_lost_interrupts()


def reraise() -> None:
    """Raise the KeyboardInterrupt that an import swallowed, if there was one."""
    if _interrupt_seen.is_set():
        raise KeyboardInterrupt


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    _interrupt_seen.set()
    raise KeyboardInterrupt


def _repeat_lost_interrupts() -> None:
    """Repeat a Ctrl-C whose KeyboardInterrupt was ignored because it was raised in a destructor.

    By a timer, because the code that learns of it is itself called where exceptions are ignored.
    """
    report = sys.unraisablehook

    def on_unraisable(ignored: sys.UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, REPEAT_SECONDS)
        else:
            report(ignored)

    signal.signal(signal.SIGALRM, _on_timer)
    sys.unraisablehook = on_unraisable


def _on_timer(number: int, frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)  # whatever that means by now
