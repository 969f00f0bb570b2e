"""Ends a thread that is given up, as soon as it returns to Python code."""

from __future__ import annotations

import ctypes
import threading


def interrupt(thread: threading.Thread) -> None:
    """Raise SystemExit in `thread` before its next bytecode.

    A system call or a library that hangs isn't interrupted; an endless loop in Python is.
    """
    if thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        )
