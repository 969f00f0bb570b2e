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
from typing import Any

import numpy as np

from hetsched.workload import KernelContext
from hetsched_workloads.fft import tuned
from hetsched_workloads.fft.batched import Transform, cache_sized, powers
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

_lock = threading.Lock()


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
    default, sizes = default_size(p, context.threads), candidates(p, context.threads, max_bytes)
    with _lock:  # the other cores need the same answer
        times = timed(context.cache, library, p, context.threads, sizes)
        if times is None and sizes and context.cache and context.tunes:
            context.say(f"timing calls of {library} for {p.shape[0]}x{p.shape[1]} {p.dtype} ...")
            # On one thread, processor time: other processes may have the core meanwhile.
            clock = time.thread_time if context.threads == 1 else time.perf_counter
            found = times = measured(p, sizes, transform_of, clock)
            key = tuned.key(library, p, context.threads)
            tuned.save(context.cache, "seconds_per_plane", key, lambda: found)
    best = default if times is None else best_size(times)
    return min(best, powers(chunk)[0])


def default_size(p: FftParams, threads: int) -> int:
    """Return the planes per call without measurements, a power of two."""
    return cache_sized(p.plane_bytes, 1 << 30, DEFAULT_BYTES * threads)


def candidates(p: FftParams, threads: int, max_bytes: int = STREAM_BYTES) -> list[int]:
    """Return the numbers of planes to time, ascending; none if it isn't worth it."""
    default, limit = default_size(p, threads), min(p.count, max_bytes // p.plane_bytes)
    sizes = sorted({int(default * factor) for factor in FACTORS} & set(range(1, limit + 1)))
    is_large = p.plane_bytes * p.count >= MIN_LOAD_BYTES
    return sizes if is_large and len(sizes) > 1 else []


def seconds_to_time(
    library: str, p: FftParams, threads: int, cache: str, max_bytes: int = STREAM_BYTES
) -> float:
    """Return how long it takes to time the calls of `library`; 0 if they are, or needn't be."""
    sizes = candidates(p, threads, max_bytes)
    return TUNING_SECONDS if sizes and not timed(cache, library, p, threads, sizes) else 0.0


def timed(
    cache: str, library: str, p: FftParams, threads: int, sizes: Sequence[int]
) -> dict[int, float] | None:
    """Return number of planes -> seconds per plane; None if one of `sizes` isn't known."""
    known: Any = tuned.load(cache, "seconds_per_plane").get(tuned.key(library, p, threads))
    try:
        return {size: float(known[str(size)]) for size in sizes} or None
    except (KeyError, TypeError, ValueError):  # not known, or no file of ours
        return None


def best_size(times: Mapping[int, float]) -> int:
    """Return the largest number among the fastest."""
    limit = min(times.values()) * (1 + MARGIN)
    return max(size for size, seconds in times.items() if seconds <= limit)


def measured(
    p: FftParams,
    sizes: Sequence[int],
    transform_of: Callable[[int], Transform],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
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
            start = clock()
            for first in range(0, planes, size):
                transforms[size](x[first : first + size], y[first : first + size])
            best[size] = min(best[size], clock() - start)
        if time.perf_counter() > end:
            break
    return {size: seconds / planes for size, seconds in best.items()}
