"""Makes FFTW's plans: from wisdom, else by measuring.

The planner isn't thread-safe, hence the lock. Plans with FFTW's ESTIMATE, which take no time, are
up to fifteen times as slow, so no job uses FFTW before tuning has made plans with MEASURE. Later,
tuning makes them with PATIENT, which wisdom keeps for good; on an AMD EPYC, milliseconds per plane
(complex64, one core):

=======  =======  =======  ============
plane    MEASURE  PATIENT  best other
=======  =======  =======  ============
128x128  0.031    0.028    0.043 mkl
256x256  0.194    0.157    0.217 mkl
500x500  1.172    1.116    1.025 ducc0
512x512  1.209    0.940    1.141 mkl
320x480  0.593    0.557    0.589 mkl
509x509  5.044    5.243    3.247 ducc0
=======  =======  =======  ============

FFTW times parts of a transform in the cache, on a machine that may be busy; so where planning is
quick it is repeated, and the plans are compared on data that streams through memory, as a job's
does.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from typing import NamedTuple

import numpy as np
import pyfftw

from hetsched.workload import KernelContext
from hetsched_workloads.fft import tuned
from hetsched_workloads.fft.tuned import MEASURE

MAX_ATTEMPTS, MAX_SECONDS = 5, 2.0
"""Number of plans to choose from, and time to make them. One in four is 20 % slower."""
MAX_PLANNING_SECONDS = 30.0
"""For one plan; FFTW then keeps the best found so far. On a busy machine a plan for several
threads would take many minutes: they wait for each other in thousands of timed transforms."""
ROUNDS = 7
"""Times that each plan is timed; the minimum is used, as other processes may be running."""
STREAM_BYTES, MAX_STREAM_PIECES = 32 << 20, 64
"""Data that plans are compared on, input and output each: larger than most caches."""
CACHE_LINE = 64
"""Bytes of a cache line."""

VERSIONS = f"{pyfftw.__version__} {pyfftw.fftw_version}"
"""Wisdom of others is of no use."""

planning_lock = threading.Lock()
_imported: dict[str, object] = {}
"""Cache folder -> the wisdom there that this process read last."""


class FftwPlanKey(NamedTuple):
    """Identifies a plan; `in_place` plans are the second half of a roundtrip."""

    shape: tuple[int, ...]
    dtype: str
    backward: bool
    in_place: bool
    threads: int
    effort: str


def planned(key: FftwPlanKey, x: np.ndarray, y: np.ndarray, context: KernelContext) -> pyfftw.FFTW:
    """Return a plan from wisdom if there is one; overwrites `x` and `y`.

    Else it is made: when tuning with the effort asked for, in a job with MEASURE.

    Raises
    ------
    RuntimeError
        pyFFTW is bound to another library than FFTW.
    """
    with planning_lock:
        if context.cache:
            _load_wisdom(context.cache)
        try:
            # uses wisdom of a greater effort, but not of a lesser one
            plan = _fftw(key, x, y, (key.effort, "FFTW_WISDOM_ONLY"))
        except RuntimeError:
            count, rows, cols = key.shape
            context.say(f"planning {rows}x{cols} {key.dtype} for FFTW ({count} at a time) ...")
            plan = _best(key if context.tunes else key._replace(effort=MEASURE), x, y)
            # Its own wisdom is added to what other processes have saved meanwhile.
            tuned.save(context.cache, "wisdom", VERSIONS, lambda: _exported(context.cache))
        _insist_on_fftw()
        return plan


def _load_wisdom(folder: str) -> None:
    """Add what is known on disk to the process's wisdom; without it, plans are made again."""
    known = tuned.load(folder, "wisdom").get(VERSIONS)
    if known is not None and known is not _imported.get(folder):
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            double, single = known
            pyfftw.import_wisdom((double.encode(), single.encode(), b""))
        _imported[folder] = known


def _exported(folder: str) -> list[str]:
    _load_wisdom(folder)
    return [text.decode() for text in pyfftw.export_wisdom()[:2]]


def _best(key: FftwPlanKey, x: np.ndarray, y: np.ndarray) -> pyfftw.FFTW:
    """Return the fastest of a few plans and add its wisdom to the process's."""
    if key.effort == MEASURE:
        return _fftw(key, x, y, (MEASURE,), MAX_PLANNING_SECONDS)
    initial = pyfftw.export_wisdom()
    candidates: list[tuple[pyfftw.FFTW, tuple[bytes, bytes, bytes]]] = []
    end = time.perf_counter() + MAX_SECONDS
    while not candidates or (len(candidates) < MAX_ATTEMPTS and time.perf_counter() < end):
        _replace_wisdom(initial)
        plan = _fftw(key, x, y, (key.effort,), MAX_PLANNING_SECONDS)
        candidates.append((plan, pyfftw.export_wisdom()))
    x[...] = y[...] = 0  # planning leaves arbitrary values in them
    seconds = _compared([plan for plan, _ in candidates], key, x, y)
    plan, its_wisdom = candidates[seconds.index(min(seconds))]
    _replace_wisdom(its_wisdom)
    plan.update_arrays(x, y)
    return plan


def _compared(
    plans: list[pyfftw.FFTW], key: FftwPlanKey, x: np.ndarray, y: np.ndarray
) -> list[float]:
    """Return the minimum seconds of each plan for a pass over more data than the cache holds.

    The plans take turns. A single plan isn't timed.
    """
    if len(plans) == 1:
        return [0.0]
    stretch = min(MAX_STREAM_PIECES, STREAM_BYTES // x.nbytes)
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
    """Return `count` aligned arrays of zeros, consecutive in memory."""
    stride = -(-like.nbytes // CACHE_LINE) * CACHE_LINE
    memory = pyfftw.zeros_aligned(stride * count, np.uint8, n=CACHE_LINE)
    starts = range(0, stride * count, stride)
    return [memory[at : at + like.nbytes].view(like.dtype).reshape(like.shape) for at in starts]


def _replace_wisdom(wisdom_texts: tuple[bytes, bytes, bytes]) -> None:
    pyfftw.forget_wisdom()
    pyfftw.import_wisdom(wisdom_texts)


def _fftw(
    key: FftwPlanKey,
    x: np.ndarray,
    y: np.ndarray,
    flags: tuple[str, ...],
    max_seconds: float | None = None,
) -> pyfftw.FFTW:
    direction = "FFTW_BACKWARD" if key.backward else "FFTW_FORWARD"
    return pyfftw.FFTW(
        x,
        y,
        axes=(1, 2),
        direction=direction,
        flags=flags,
        threads=key.threads,
        planning_timelimit=max_seconds,
    )


@functools.cache
def _insist_on_fftw() -> None:
    """Raise RuntimeError if MKL, loaded before pyFFTW, has taken over FFTW's symbols."""
    if not any(text.count(b"\n") > 1 for text in pyfftw.export_wisdom()[:2]):
        raise RuntimeError("pyFFTW runs another library than FFTW: was MKL loaded before it?")
