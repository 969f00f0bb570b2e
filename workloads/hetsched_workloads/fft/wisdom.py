"""FFTW's wisdom on disk: one JSON file per version of pyFFTW, version of FFTW, and processor.

Several processes share the file: a writer merges its current contents and replaces it as a whole.
If the file is unreadable, plans are only made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyfftw

from hetsched_workloads.installed import processor

_loaded: dict[Path, float] = {}
"""Wisdom file -> its modification time when this process last read or wrote it."""


def wisdom_file(folder: str) -> Path:
    machine = hashlib.sha256(" ".join(processor()).encode()).hexdigest()[:8]
    return Path(folder) / f"wisdom-{pyfftw.__version__}-{pyfftw.fftw_version}-{machine}.json"


def load(folder: str) -> bool:
    """Add the file's wisdom to the process's. Return False if nothing was new."""
    path = wisdom_file(folder)
    try:
        changed = path.stat().st_mtime_ns
        if _loaded.get(path) == changed:
            return False
        double, single = json.loads(path.read_text())["wisdom"]
        imported = pyfftw.import_wisdom((double.encode(), single.encode(), b""))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    _loaded[path] = changed
    return bool(any(imported))


def save(folder: str) -> None:
    """Merge the process's wisdom into the file; an unwritable file is ignored."""
    if not folder:
        return
    path = wisdom_file(folder)
    try:
        with _lock(path.with_suffix(".lock")):
            load(folder)
            double, single = (text.decode() for text in pyfftw.export_wisdom()[:2])
            fresh = path.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps({"wisdom": [double, single]}))
            fresh.replace(path)
            _loaded[path] = path.stat().st_mtime_ns
    except OSError:
        return


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
