"""Logs every call of a function below some folders, in this process and those forked from it.

Python imports this module at start-up because `job_path.py` puts its folder on PYTHONPATH. The
first byte of the file HETSCHED_CALLS_SWITCH says whether calls are logged now. They are appended
to HETSCHED_CALLS_LOG as they happen, since device processes end without any exit handler.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
from types import FrameType

LOG = os.environ.get("HETSCHED_CALLS_LOG", "")
CO_OPTIMIZED = 1
"""Flag of a function's code; the bodies of modules and classes don't have it."""


def record_calls() -> None:
    switch_fd = os.open(os.environ["HETSCHED_CALLS_SWITCH"], os.O_RDONLY)
    switch = mmap.mmap(switch_fd, 1, access=mmap.ACCESS_READ)
    log = os.open(LOG, os.O_WRONLY | os.O_APPEND)
    roots = tuple(os.environ["HETSCHED_CALLS_ROOTS"].split(os.pathsep))

    def record(frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or switch[0] != 1:
            return
        code = frame.f_code
        if code.co_flags & CO_OPTIMIZED and code.co_filename.startswith(roots):
            os.write(log, f"{os.getpid()}\t{code.co_filename}\t{code.co_qualname}\n".encode())

    threading.setprofile(record)
    sys.setprofile(record)


if LOG:
    record_calls()
