"""What tuning has found out about FFTs, on disk: times of calls, FFTW's wisdom and its effort.

One JSON file for each processor, shared by processes: a writer merges its current contents and
replaces it as a whole. Imports no FFT library, so that it can be asked what is left to do.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from hetsched.machine_limits import processor
from hetsched_workloads.fft.batched import cache_sized
from hetsched_workloads.fft.declaration import FftParams

MEASURE, PATIENT = "FFTW_MEASURE", "FFTW_PATIENT"
MAX_PATIENT_POINTS = 1 << 18
"""Of a plane: PATIENT takes 5 s at 512x512, 23 s at 1024x1024."""
MAX_FFTW_CALL_BYTES = 4 << 20
"""Planes of one call of FFTW: a plan for more takes long to make."""

Section = Literal["seconds_per_plane", "effort", "wisdom"]
"""Of calls, by the number of planes; of FFTW's plans; by versions of pyFFTW and FFTW."""
_read: dict[Path, tuple[int, Mapping[str, Mapping[str, Any]]]] = {}
"""File -> its time of modification, and its contents."""


def key(library: str, p: FftParams, threads: int) -> str:
    """Return what jobs have in common that are tuned together; `library`: name and version."""
    return f"{library} {p.shape[0]}x{p.shape[1]} {p.dtype} {p.direction} {threads}"


def fftw_key(library: str, p: FftParams, threads: int) -> str:
    """Return what jobs have in common that use the same plans."""
    return f"{key(library, p, threads)} {largest_call(p)}"


def largest_call(p: FftParams) -> int:
    """Return the planes of FFTW's largest call: a power of two."""
    return cache_sized(p.plane_bytes, p.count, MAX_FFTW_CALL_BYTES)


def fftw_effort(library: str, p: FftParams, threads: int, cache: str) -> str:
    """Return the effort that FFTW's plans were made with; "" if there are none."""
    known = load(cache, "effort").get(fftw_key(library, p, threads))
    return known if known in (MEASURE, PATIENT) else ""


def next_effort(done: str, p: FftParams) -> str:
    """Return the effort that tuning plans with after `done`; "" if that was the last."""
    if not done:
        return MEASURE
    return PATIENT if done == MEASURE and p.points <= MAX_PATIENT_POINTS else ""


def planning_seconds(effort: str, p: FftParams) -> float:
    """Return about how long FFTW plans all sizes of calls; 0 for no effort."""
    if not effort:
        return 0.0
    plans = largest_call(p).bit_length()
    directions = 2 if p.direction == "roundtrip" else 1
    return plans * directions * (0.3 + (1.2e-6 if effort == MEASURE else 2e-5) * p.points)


def file_of(folder: str) -> Path:
    name = hashlib.sha256(processor().encode()).hexdigest()[:8]
    return Path(folder) / f"fft-tuned-{name}.json"


def changed(folder: str) -> int:
    """Return when the file was changed last, by the system's clock; 0 without one."""
    try:
        return file_of(folder).stat().st_mtime_ns
    except OSError:
        return 0


def load(folder: str, section: Section) -> Mapping[str, Any]:
    """Return what is known, by `key`; nothing from a file that can't be read."""
    path = file_of(folder)
    try:
        now = changed(folder)
        if path not in _read or _read[path][0] != now:
            content = json.loads(path.read_text())
            _read[path] = now, {name: dict(known) for name, known in content.items()}
        return _read[path][1].get(section, {})
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def save(folder: str, section: Section, name: str, value: Callable[[], object]) -> None:
    """Add what `value` returns to the file while no other process writes; errors are ignored."""
    if not folder:
        return
    path = file_of(folder)
    with contextlib.suppress(OSError), path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        added = value()
        load(folder, section)
        content = dict(_read[path][1]) if path in _read and path.exists() else {}
        content[section] = {**content.get(section, {}), name: added}
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(content, indent=1))
        fresh.replace(path)
