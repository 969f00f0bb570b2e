"""How FFTW's plans are found: by wisdom, else by measuring.

The planner isn't thread-safe: one lock. A job that is worth it gets PATIENT plans: on some
processors they are 10 to 80 % faster than MEASURE's, and they are kept for good. Planning times
pieces of a transform in the cache, on a machine that may be busy, so it is done more than once
where that is quick, and the plans run against each other on data that streams through memory, as a
job's does.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import NamedTuple

import numpy as np
import pyfftw

from hetsched.workload import KernelContext
from hetsched_workloads.fft import wisdom

MEASURE, PATIENT = "FFTW_MEASURE", "FFTW_PATIENT"
ATTEMPTS, ENOUGH_SECONDS = 5, 2.0
"""Plans made at most; none more after so long. One in four is 20 % slower than the others."""
PATIENT_POINTS = 1 << 18
"""Of a plane: PATIENT takes 0.3 s at 64x64, 2 s at 256x256, 5 s at 512x512, 23 s at 1024x1024."""
QUICK_POINTS = 1 << 14
LOAD_BYTES, QUICK_LOAD_BYTES = 96 << 20, 8 << 20
"""A job with more input is worth PATIENT plans; up to QUICK_POINTS they are soon made."""
ROUNDS = 7
"""How often each is timed; the least time counts, because others use the machine too."""
WORTH_BYTES = 512 << 10
"""Of a call: below, one MEASURE will do; such plans only serve what is left of a chunk."""
STREAM_BYTES, MOST_PIECES = 32 << 20, 64
"""Of the data that plans are compared on, each side: larger than most caches."""
LINE = 64
"""Bytes of a cache line."""

_planning = threading.Lock()


class Key(NamedTuple):
    """What a plan is for; `in_place` plans are the second half of a roundtrip."""

    shape: tuple[int, int, int]
    dtype: str
    backward: bool
    in_place: bool
    threads: int
    thorough: bool


def worth(points: int, load_bytes: int) -> bool:
    """Whether a job is large enough to take time for its plans."""
    return load_bytes >= (QUICK_LOAD_BYTES if points <= QUICK_POINTS else LOAD_BYTES)


def planned(key: Key, x: np.ndarray, y: np.ndarray, context: KernelContext) -> pyfftw.FFTW:
    """The plan by wisdom if there is some, else the best of a few; overwrites `x` and `y`.

    Raises
    ------
    RuntimeError
        pyFFTW is bound to another library than FFTW.
    """
    effort = _effort(key, x.nbytes)
    with _planning:
        if context.cache:
            wisdom.load(context.cache)
        try:
            # wisdom of a greater effort will do, of a lesser one won't
            plan = _fftw(key, x, y, (effort, "FFTW_WISDOM_ONLY"))
        except RuntimeError:
            count, rows, cols = key.shape
            context.say(f"planning {rows}x{cols} {key.dtype} for FFTW ({count} at a time) ...")
            plan = _best(key, x, y, effort)
            wisdom.save(context.cache)
        _insist_on_fftw()
        return plan


def _effort(key: Key, nbytes: int) -> str:
    _, rows, cols = key.shape
    patient = key.thorough and nbytes >= WORTH_BYTES and rows * cols <= PATIENT_POINTS
    return PATIENT if patient else MEASURE


def _best(key: Key, x: np.ndarray, y: np.ndarray, effort: str) -> pyfftw.FFTW:
    """The fastest of a few plans; its wisdom is the process's from now on."""
    if not key.thorough or x.nbytes < WORTH_BYTES:
        return _fftw(key, x, y, (effort,))
    known = pyfftw.export_wisdom()
    candidates: list[tuple[pyfftw.FFTW, tuple[bytes, bytes, bytes]]] = []
    end = time.perf_counter() + ENOUGH_SECONDS
    while not candidates or (len(candidates) < ATTEMPTS and time.perf_counter() < end):
        _replace_wisdom(known)
        plan = _fftw(key, x, y, (effort,))
        candidates.append((plan, pyfftw.export_wisdom()))
    x[...] = y[...] = 0  # planning leaves anything in them, and plans run on them
    seconds = _compared([plan for plan, _ in candidates], key, x, y)
    plan, its_wisdom = candidates[seconds.index(min(seconds))]
    _replace_wisdom(its_wisdom)
    plan.update_arrays(x, y)
    return plan


def _compared(plans: list[pyfftw.FFTW], key: Key, x: np.ndarray, y: np.ndarray) -> list[float]:
    """Least seconds of each plan for a pass over more data than the cache holds, in turns.

    A single plan has nothing to be compared with.
    """
    if len(plans) == 1:
        return [0.0]
    stretch = min(MOST_PIECES, STREAM_BYTES // x.nbytes)
    sources = [x] if stretch < 2 else _stream(x, stretch)
    targets = [y] if stretch < 2 else sources if key.in_place else _stream(x, stretch)
    best = [float("inf")] * len(plans)
    for _ in range(ROUNDS):
        for number, plan in enumerate(plans):
            start = time.perf_counter()
            for source, target in zip(sources, targets, strict=True):
                plan.update_arrays(source, target)
                plan.execute()
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def _stream(like: np.ndarray, count: int) -> list[np.ndarray]:
    """`count` arrays of zeros, one after the other, each aligned."""
    stride = -(-like.nbytes // LINE) * LINE
    memory = pyfftw.zeros_aligned(stride * count, np.uint8, n=LINE)
    starts = range(0, stride * count, stride)
    return [memory[at : at + like.nbytes].view(like.dtype).reshape(like.shape) for at in starts]


def _replace_wisdom(whole: tuple[bytes, bytes, bytes]) -> None:
    pyfftw.forget_wisdom()
    pyfftw.import_wisdom(whole)


def _fftw(key: Key, x: np.ndarray, y: np.ndarray, flags: tuple[str, ...]) -> pyfftw.FFTW:
    direction = "FFTW_BACKWARD" if key.backward else "FFTW_FORWARD"
    return pyfftw.FFTW(x, y, axes=(1, 2), direction=direction, flags=flags, threads=key.threads)


@functools.cache
def _insist_on_fftw() -> None:
    """MKL loaded before pyFFTW takes FFTW's symbols over, silently; it has no wisdom."""
    if not any(text.count(b"\n") > 1 for text in pyfftw.export_wisdom()[:2]):
        raise RuntimeError("pyFFTW runs another library than FFTW: was MKL loaded before it?")
