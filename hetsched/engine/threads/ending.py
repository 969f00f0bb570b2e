"""Ends threads: interrupts one that is given up, waits for several no longer than allowed."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence


def interrupt(thread: threading.Thread) -> None:
    """Raise SystemExit in `thread` before its next bytecode.

    A system call or a library that hangs isn't interrupted; an endless loop in Python is.
    """
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        )


def join_all(threads: Sequence[threading.Thread], seconds: float) -> bool:
    """Wait for the end of all `threads`; return whether they ended within `seconds` in all."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
