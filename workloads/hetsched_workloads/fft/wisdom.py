"""FFTW's wisdom on disk: one JSON file per version of pyFFTW, version of FFTW, and processor.

Several processes share the file: a writer merges its current contents and replaces it as a whole.
If the file is unreadable, plans are only made again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyfftw

from hetsched_workloads.fft.tuned import locked
from hetsched_workloads.installed import processor_id

_loaded: dict[Path, float] = {}
"""Wisdom file -> its modification time when this process last read or wrote it."""


def wisdom_file(folder: str) -> Path:
    versions = f"{pyfftw.__version__}-{pyfftw.fftw_version}"
    return Path(folder) / f"wisdom-{versions}-{processor_id()}.json"


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
        with locked(path):
            load(folder)
            double, single = (text.decode() for text in pyfftw.export_wisdom()[:2])
            fresh = path.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps({"wisdom": [double, single]}))
            fresh.replace(path)
            _loaded[path] = path.stat().st_mtime_ns
    except OSError:
        return
