"""What tuning has found out about FFTs of planes: planes of one call, FFTW's wisdom and effort.

Too few planes and the calls cost more than the transforms, above all on two threads, which contend
for the interpreter lock; too many and the second pass over a call's planes misses the cache.
Neither follows from the size of a cache, so tuning times a few numbers, for each library, size of
plane and processor, on data that stream through memory, as a job's do. Until then, and for small
jobs, it is `default_size`.

All is in one JSON file for each processor, shared by processes: a writer merges its current
contents and replaces it as a whole. Imports no FFT library, so that it can be asked what is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from hetsched.machine_limits import processor
from hetsched.workload import KernelContext, Tuning
from hetsched_workloads.fft import FftParams

MEASURE, PATIENT = "FFTW_MEASURE", "FFTW_PATIENT"
MAX_PATIENT_POINTS = 1 << 18
"""Of a plane: PATIENT takes 5 s at 512x512, 23 s at 1024x1024."""
MAX_FFTW_CALL_BYTES = 4 << 20
"""Planes of one call of FFTW: a plan for more takes long to make."""
DEFAULT_BYTES = 1 << 20
"""Bytes of the planes of one call as long as nothing was measured: enough to hide its cost."""
FACTORS = (0.25, 1, 4, 16, 64)
"""Numbers of planes that are timed, as multiples of the default. Powers of two between them gain
at most 2 %."""
STREAM_BYTES = 32 << 20
"""Input that a call is timed on, and as much output: larger than most caches."""
MIN_LOAD_BYTES = 24 << 20
"""Jobs with less input aren't worth the time. Arbitrary: a job of about 10 ms."""
ROUNDS, MAX_SECONDS = 5, 0.6
"""Times that each call is timed, of which the minimum counts; and the time for all, after which
no further round is begun."""
MARGIN = 0.02
"""The largest number within this of the fastest is chosen: fewer calls disturb threads less."""
TUNING_SECONDS = 1.0
"""That timing the calls of one library takes, about."""

Transform = Callable[[np.ndarray, np.ndarray], None]
"""transform(x, y): one call of the library for all planes of x."""
_lock = threading.Lock()


def powers(limit: int) -> tuple[int, ...]:
    """Return the powers of two up to `limit`, largest first: powers(6) is (4, 2, 1)."""
    return tuple(1 << k for k in range(max(1, limit).bit_length() - 1, -1, -1))


def default_size(p: FftParams, threads: int) -> int:
    """Return the units of one call without measurements, a power of two."""
    return powers(DEFAULT_BYTES * threads // max(1, p.plane_bytes))[0]


def tuning_left(library: str, p: FftParams, threads: int, cache: str) -> Tuning:
    """Return how long it takes to time the calls of `library`, and to make FFTW's plans."""
    return _left(Tuned(library, p, threads, cache), changed(cache))


@functools.lru_cache(maxsize=64)  # every job asks, of each core
def _left(known: Tuned, changed_at: int) -> Tuning:
    if not known.p.is_planes:
        return Tuning()
    sizes = known.sizes_to_time()
    calls = TUNING_SECONDS if sizes and not known.seconds_per_plane(sizes) else 0.0
    if not known.is_fftw:
        return Tuning(calls)
    seconds = known.planning_seconds()
    return Tuning(calls + seconds) if known.effort() else Tuning(seconds, is_needed=True)


class Tuned(NamedTuple):
    """What jobs have in common that are tuned together."""

    library: str  # Name and version
    p: FftParams
    threads: int
    cache: str  # Folder; "": nothing is kept

    @property
    def key(self) -> str:
        rows, cols = self.p.shape
        return f"{self.library} {rows}x{cols} {self.p.dtype} {self.p.direction} {self.threads}"

    @property
    def is_fftw(self) -> bool:
        return self.library.startswith("pyfftw ")

    # ---- planes of one call

    def call_size(
        self, chunk: int, context: KernelContext, transform_of: Callable[[int], Transform]
    ) -> int:
        """Return the planes per call, a power of two of at most `chunk`.

        `transform_of`: number of planes -> the call to time.
        """
        best, sizes = default_size(self.p, self.threads), self.sizes_to_time()
        with _lock:  # the other cores need the same answer
            times = self.seconds_per_plane(sizes)
            if times is None and sizes and self.cache and context.tunes:
                rows, cols = self.p.shape
                context.say(f"timing calls of {self.library} for {rows}x{cols} {self.p.dtype} ...")
                calls = [(size, transform_of(size)) for size in sizes]
                seconds = timed(self.p.shape, self.p.dtype, calls, self.threads)
                found = times = dict(zip(sizes, seconds, strict=True))
                save(self.cache, "seconds_per_plane", self.key, lambda: found)
        if times:
            limit = min(times.values()) * (1 + MARGIN)
            best = max(size for size, seconds in times.items() if seconds <= limit)
        return min(best, powers(chunk)[0])

    def sizes_to_time(self) -> list[int]:
        """Return the numbers of planes to time, ascending; none if it isn't worth it."""
        plane, default = self.p.plane_bytes, default_size(self.p, self.threads)
        limit = min(self.p.count, (MAX_FFTW_CALL_BYTES if self.is_fftw else STREAM_BYTES) // plane)
        sizes = sorted({int(default * factor) for factor in FACTORS} & set(range(1, limit + 1)))
        return sizes if plane * self.p.count >= MIN_LOAD_BYTES and len(sizes) > 1 else []

    def seconds_per_plane(self, sizes: Sequence[int]) -> dict[int, float] | None:
        """Return those of calls of each size; None if one of `sizes` isn't known."""
        known: Any = load(self.cache, "seconds_per_plane").get(self.key)
        try:
            return {size: float(known[str(size)]) for size in sizes} or None
        except (KeyError, TypeError, ValueError):  # not known, or no file of ours
            return None

    # ---- FFTW's plans

    def largest_call(self) -> int:
        """Return the planes of FFTW's largest call: a power of two."""
        return powers(min(self.p.count, MAX_FFTW_CALL_BYTES // max(1, self.p.plane_bytes)))[0]

    @property
    def effort_key(self) -> str:
        return f"{self.key} {self.largest_call()}"

    def effort(self) -> str:
        """Return the effort that FFTW's plans were made with; "" if there are none."""
        known = load(self.cache, "effort").get(self.effort_key)
        return known if known in (MEASURE, PATIENT) else ""

    def next_effort(self) -> str:
        """Return the effort that tuning plans with next; "" if there is none."""
        done = self.effort()
        if not done:
            return MEASURE
        return PATIENT if done == MEASURE and self.p.points <= MAX_PATIENT_POINTS else ""

    def planning_seconds(self) -> float:
        """Return about how long FFTW plans all sizes of calls with the next effort."""
        effort = self.next_effort()
        if not effort:
            return 0.0
        plans = self.largest_call().bit_length() * len(self.p.transforms)
        return plans * (0.3 + (1.2e-6 if effort == MEASURE else 2e-5) * self.p.points)


def timed(
    shape: tuple[int, ...], dtype: str, calls: Sequence[tuple[int, Transform]], threads: int
) -> list[float]:
    """Return the seconds per plane of each of `calls`, (planes, transform), which take turns."""
    # On one thread, processor time: other processes may have the core meanwhile.
    clock = time.thread_time if threads == 1 else time.perf_counter
    largest, plane_bytes = (
        max(size for size, _ in calls),
        math.prod(shape) * np.dtype(dtype).itemsize,
    )
    planes = max(1, STREAM_BYTES // plane_bytes // largest) * largest
    x = np.zeros((planes, *shape), dtype)
    y = np.ones_like(x)
    x += 1  # its pages are in place now
    best = [math.inf] * len(calls)
    end = time.perf_counter() + MAX_SECONDS
    for turn in range(ROUNDS):
        for number in range(len(calls))[:: 1 if turn % 2 else -1]:
            size, transform = calls[number]
            start = clock()
            for first in range(0, planes, size):
                transform(x[first : first + size], y[first : first + size])
            best[number] = min(best[number], clock() - start)
        if time.perf_counter() > end:
            break
    return [seconds / planes for seconds in best]


# ---- the file

Section = Literal["seconds_per_plane", "effort", "wisdom"]
"""Of calls, by the number of planes; of FFTW's plans; by versions of pyFFTW and FFTW."""
_read: dict[Path, tuple[int, Mapping[str, Mapping[str, Any]]]] = {}
"""File -> its time of modification, and its contents."""


def file_of(folder: str) -> Path:
    name = hashlib.sha256(processor().encode()).hexdigest()[:8]
    return Path(folder) / f"fft-tuned-{name}.json"


def changed(folder: str) -> int:
    """Return when the file was changed last; 0 without one."""
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
