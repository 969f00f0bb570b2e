"""Records which source files run in this process during a window of time.

Python imports this module at start-up because `files_touched.py` puts its folder on PYTHONPATH.
HETSCHED_FILE_RECORDER names a folder: recording starts when `begin` appears in it; when `end`
appears, or this process ends, the names are written to `PID.json`.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType

FOLDER = os.environ.get("HETSCHED_FILE_RECORDER", "")
POLL_SECONDS = 0.01
CO_OPTIMIZED = 1
"""Flag of a function's code; the bodies of modules and classes don't have it."""

_codes: set[CodeType] = set()


def _record(frame: FrameType, event: str, argument: object) -> None:
    _codes.add(frame.f_code)


def _write() -> None:
    codes = set(_codes)
    record = {
        "command": sys.argv,
        "files": sorted({code.co_filename for code in codes}),
        "functions": sorted({c.co_filename for c in codes if c.co_flags & CO_OPTIMIZED}),
    }
    path = Path(FOLDER) / f"{os.getpid()}.json"
    path.write_text(json.dumps(record), encoding="utf-8")


def _wait_for(name: str) -> None:
    while not (Path(FOLDER) / name).exists():
        time.sleep(POLL_SECONDS)


def _watch() -> None:
    """Discard what ran before the window; write what ran during it."""
    _wait_for("begin")
    _codes.clear()
    _wait_for("end")
    _write()


if FOLDER:
    threading.setprofile(_record)
    if (Path(FOLDER) / "begin").exists():
        atexit.register(_write)
    else:
        threading.Thread(target=_watch, name="file-recorder", daemon=True).start()
    sys.setprofile(_record)
