"""How many planes one call transforms: measured for each library, size of plane and processor.

Too few and the calls cost more than the transforms, above all on two threads, which contend for
the interpreter lock; too many and the second pass over a call's planes misses the cache. Neither
follows from the size of a cache, so a kernel's first `make` for planes of a size times a few
numbers on data that stream through memory, as a job's do. The times are kept in a file; small jobs
aren't worth it and use `default_size`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.workload import KernelContext
from hetsched_workloads.fft.batched import cache_sized, powers
from hetsched_workloads.fft.declaration import FftParams
from hetsched_workloads.installed import processor

DEFAULT_BYTES = 1 << 20
"""Bytes of the planes of one call as long as nothing was measured: enough to hide its cost."""
FACTORS = (0.25, 1, 4, 16, 64)
"""Numbers of planes that are timed, as multiples of the default. Powers of two between them gain
at most 2 %."""
STREAM_BYTES = 32 << 20
"""Input that a number is timed on, and as much output: larger than most caches."""
MIN_LOAD_BYTES = 24 << 20
"""Jobs with less input aren't worth the time. Arbitrary: a job of about 10 ms."""
ROUNDS, MAX_SECONDS = 5, 0.6
"""Times that each number is timed, of which the minimum counts; and the time for all, after which
no further round is begun."""
MARGIN = 0.02
"""The largest number within this of the fastest is chosen: fewer calls disturb threads less."""

Transform = Callable[[np.ndarray, np.ndarray], None]
"""transform(x, y): one call for a fixed number of planes."""

_lock = threading.Lock()


def default_size(p: FftParams, chunk: int, threads: int = 1) -> int:
    """Return the planes per call without measurements, a power of two of at most `chunk`."""
    return cache_sized(p.plane_bytes, chunk, DEFAULT_BYTES * threads)


def call_size(
    library: str,
    p: FftParams,
    chunk: int,
    context: KernelContext,
    transform_of: Callable[[int], Transform],
    max_bytes: int = STREAM_BYTES,
) -> int:
    """Return the planes per call, a power of two of at most `chunk`.

    Parameters
    ----------
    library : str
        Name and version.
    transform_of : callable
        Number of planes -> the call to time.
    max_bytes : int, bytes
        Of the planes of one call.
    """
    sizes = candidates(p, context.threads, max_bytes)
    if len(sizes) < 2 or p.plane_bytes * p.count < MIN_LOAD_BYTES or not context.cache:
        return default_size(p, chunk, context.threads)
    key = f"{library} {p.shape[0]}x{p.shape[1]} {p.dtype} {p.direction} {context.threads}"
    with _lock:  # the other cores need the same answer
        times = load(context.cache).get(key)
        if times is None or not times.keys() >= {str(size) for size in sizes}:
            context.say(f"timing calls of {library} for {p.shape[0]}x{p.shape[1]} {p.dtype} ...")
            # On one thread, processor time: other processes may have the core meanwhile.
            clock = time.thread_time if context.threads == 1 else time.perf_counter
            times = measured(p, sizes, transform_of, clock)
            save(context.cache, key, times)
    return best_size(times, chunk)


def candidates(p: FftParams, threads: int, max_bytes: int = STREAM_BYTES) -> list[int]:
    """Return the numbers of planes to time, ascending."""
    default = default_size(p, 1 << 30, threads)
    limit = min(p.count, max_bytes // p.plane_bytes)
    sizes = {int(default * factor) for factor in FACTORS}
    return sorted(size for size in sizes if 1 <= size <= limit)


def best_size(times: Mapping[str, float], chunk: int) -> int:
    """Return the largest number up to `chunk` that is among the fastest.

    A chunk smaller than all numbers is transformed in calls as large as possible.
    """
    fitting = {int(size): seconds for size, seconds in times.items() if int(size) <= chunk}
    if not fitting:
        return powers(chunk)[0]
    limit = min(fitting.values()) * (1 + MARGIN)
    best = max(size for size, seconds in fitting.items() if seconds <= limit)
    missing = [int(size) for size in times if int(size) > chunk]
    if best == max(fitting) and missing and min(times.values()) < min(fitting.values()):
        return powers(chunk)[0]  # larger calls would be faster still
    return best


def measured(
    p: FftParams,
    sizes: Sequence[int],
    transform_of: Callable[[int], Transform],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return number of planes -> seconds per plane."""
    planes = max(sizes[-1], STREAM_BYTES // p.plane_bytes // sizes[-1] * sizes[-1])
    x = np.zeros((planes, *p.shape), p.dtype)
    y = np.ones_like(x)
    x += 1  # its pages are in place now
    transforms = {size: transform_of(size) for size in sizes}
    best = dict.fromkeys(sizes, float("inf"))
    end = time.perf_counter() + MAX_SECONDS
    for turn in range(ROUNDS):
        for size in sizes if turn % 2 else reversed(sizes):
            best[size] = min(best[size], _pass(transforms[size], size, x, y, clock))
        if time.perf_counter() > end:
            break
    return {str(size): seconds / planes for size, seconds in best.items()}


def _pass(
    transform: Transform, size: int, x: np.ndarray, y: np.ndarray, clock: Callable[[], float]
) -> float:
    start = clock()
    for first in range(0, len(x), size):
        transform(x[first : first + size], y[first : first + size])
    return clock() - start


def file_of(folder: str) -> Path:
    machine = hashlib.sha256(" ".join(processor()).encode()).hexdigest()[:8]
    return Path(folder) / f"fft-calls-{machine}.json"


def load(folder: str) -> dict[str, dict[str, float]]:
    """Return the measured times by key; nothing from a file that can't be read."""
    try:
        content = json.loads(file_of(folder).read_text())
        return {key: dict(times) for key, times in content["seconds_per_plane"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def save(folder: str, key: str, times: Mapping[str, float]) -> None:
    """Add `times` to the file, which other processes may write, too; errors are ignored."""
    path = file_of(folder)
    try:
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content: dict[str, Any] = {"seconds_per_plane": {**load(folder), key: dict(times)}}
            fresh = path.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(content, indent=1))
            fresh.replace(path)
    except OSError:
        return
