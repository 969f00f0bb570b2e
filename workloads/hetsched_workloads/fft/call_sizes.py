"""How many planes one call transforms: measured for each library, size of plane and processor.

Too few and the calls cost more than the transforms, above all on two threads, which contend for
the interpreter lock; too many and the second pass over a call's planes misses the cache. Neither
follows from the size of a cache, so tuning times a few numbers on data that stream through memory,
as a job's do. Until then, and for small jobs, it is `default_size`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hetsched.workload import KernelContext
from hetsched_workloads.fft import tuned
from hetsched_workloads.fft.batched import cache_sized, powers
from hetsched_workloads.fft.declaration import FftParams

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
TUNING_SECONDS = 1.0
"""That timing the calls of one library takes, about."""

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
    if not is_worth_timing(p, sizes) or not context.cache:
        return default_size(p, chunk, context.threads)
    key = tuned.key(library, p, context.threads)
    with _lock:  # the other cores need the same answer
        times = timed(context.cache, key, sizes)
        if times is None:
            if not context.tunes:
                return default_size(p, chunk, context.threads)
            context.say(f"timing calls of {library} for {p.shape[0]}x{p.shape[1]} {p.dtype} ...")
            # On one thread, processor time: other processes may have the core meanwhile.
            clock = time.thread_time if context.threads == 1 else time.perf_counter
            times = measured(p, sizes, transform_of, clock)
            found = times
            tuned.save(context.cache, "seconds_per_plane", key, lambda: found)
    return best_size(times, chunk)


def seconds_to_time(library: str, p: FftParams, threads: int, cache: str, max_bytes: int) -> float:
    """Return how long it takes to time the calls of `library`; 0 if they are, or needn't be."""
    sizes = candidates(p, threads, max_bytes)
    if not is_worth_timing(p, sizes) or timed(cache, tuned.key(library, p, threads), sizes):
        return 0.0
    return TUNING_SECONDS


def is_worth_timing(p: FftParams, sizes: Sequence[int]) -> bool:
    return len(sizes) > 1 and p.plane_bytes * p.count >= MIN_LOAD_BYTES


def timed(cache: str, key: str, sizes: Sequence[int]) -> dict[str, float] | None:
    """Return number of planes -> seconds per plane; None if a size is missing or no time."""
    times = tuned.load(cache, "seconds_per_plane").get(key)
    if not isinstance(times, dict) or not times.keys() >= {str(size) for size in sizes}:
        return None
    is_sound = all(isinstance(value, int | float) and value > 0 for value in times.values())
    return times if is_sound else None


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
