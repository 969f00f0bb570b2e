"""FFT by FFTW through pyFFTW, with plans from wisdom, which is kept on disk, else by measuring.

The planner isn't thread-safe, hence the lock. Plans with FFTW's ESTIMATE, which take no time, are
up to fifteen times as slow, so no job uses FFTW for planes before tuning has made plans with
MEASURE. Later, tuning makes them with PATIENT, which wisdom keeps for good; on an AMD EPYC,
milliseconds per plane of 512x512 (complex64, one core): MEASURE 1.209, PATIENT 0.940, the best
other library 1.141; of 509x509 5.044, 5.243, 3.247.

FFTW times parts of a transform in the cache, on a machine that may be busy; so where planning is
quick it is repeated, and the plans are compared on data that streams through memory, as a job's
does. Planning overwrites its arrays and is slow, so plans are made on scratch memory in `make` and
executed on the job's arrays.
"""

from __future__ import annotations

import contextlib
import functools
import math
import mmap
import threading
import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyfftw

from hetsched.workload import KernelContext
from hetsched_workloads.fft import DTYPES, FftParams, tuning
from hetsched_workloads.fft.libraries import OwnPlans, pointer
from hetsched_workloads.fft.tuning import MEASURE, Tuned, default_size, powers

MIN_PATIENT_BYTES = 512 << 10
"""Of a call. Smaller plans only serve the remainder of a chunk: MEASURE will do."""
ALIGNMENT = 16
"""Bytes; required by FFTW's vector code."""
MAX_ATTEMPTS, MAX_SECONDS = 5, 2.0
"""Number of plans to choose from, and time to make them. One in four is 20 % slower."""
MAX_TUNING_SECONDS, MAX_WAIT_SECONDS = 30.0, 5.0
"""For one plan, and where a job waits for it; FFTW then keeps the best found so far. On a busy
machine a plan for several threads would take many minutes: they wait for each other in thousands
of timed transforms."""
VERSIONS = f"{pyfftw.__version__} {pyfftw.fftw_version}"
"""Wisdom of others is of no use."""

_planning_lock = threading.Lock()
_imported: dict[str, object] = {}
"""Cache folder -> the wisdom there that this process read last."""
_plans = OwnPlans()


class FftwTransform:
    """Transforms units by plans for powers of two of them, so that few serve chunks of any size.

    Raises RuntimeError if pyFFTW is bound to another library than FFTW.
    """

    def __init__(self, library: str, p: FftParams, chunk: int, context: KernelContext) -> None:
        real = DTYPES[p.dtype].real
        dtypes = real if p.kind == "r2c" else p.dtype, real if p.kind == "c2r" else p.dtype
        self._arrays = p.shape, p.output_shape, *dtypes, p.batch_axes
        self._factors = {name: p.factor(name) for name in p.transforms}
        self._copies = not p.is_planes
        self._plane_bytes, self._context = p.plane_bytes, context
        # Without tuning: the plan that takes the least time to make.
        self._effort = MEASURE
        self._sizes: tuple[int, ...] = (1,)
        self.units_per_call = default_size(p, context.threads)
        known = Tuned(library, p, context.threads, context.cache)
        done = known.effort() if p.is_planes else MEASURE
        if p.is_planes:
            self.units_per_call = known.call_size(
                chunk,
                context if done else replace(context, tunes=False),  # plans first
                lambda size: self._plan(size, p.transforms[0], False).run,  # as fast to call
            )
            self._effort = (known.next_effort() if context.tunes else "") or done or MEASURE
            # What tuning plans serves chunks of every size
            self._sizes = powers(known.largest_call() if context.tunes else self.units_per_call)
        for size in self._sizes:
            for number, name in enumerate(p.transforms):
                self._plan(size, name, number > 0)
        if self._effort != done and self._sizes[0] == known.largest_call():
            tuning.save(context.cache, "effort", known.effort_key, lambda: self._effort)

    def __call__(self, name: str, x: np.ndarray, y: np.ndarray) -> None:
        first = 0
        for size in self._sizes:
            if len(x) - first < size:
                continue
            plan = self._plan(size, name, x is y)
            while len(x) - first >= size:
                part = slice(first, first + size)
                plan.run(x[part], y[part], self._factors[name], self._copies)
                first += size

    def _plan(self, count: int, name: str, is_in_place: bool) -> FftwPlan:
        effort = MEASURE if count * self._plane_bytes < MIN_PATIENT_BYTES else self._effort
        use = name.startswith("i"), is_in_place, self._context.threads, effort
        key = FftwPlanKey(count, *self._arrays, *use)
        plan: FftwPlan = _plans.kept.get_or_compute(key, lambda: FftwPlan(key, self._context))
        return plan


class FftwPlanKey(NamedTuple):
    """Identifies a plan; `is_in_place` plans are the second half of a roundtrip."""

    units: int
    shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    dtype: str
    output_dtype: str
    axes: tuple[int, ...]
    is_backward: bool
    is_in_place: bool
    threads: int
    effort: str


class FftwPlan:
    """An FFTW plan and the scratch arrays it was made on.

    FFTW is up to twice as slow on data that isn't 16-byte aligned (every second plane of odd size
    in complex64): such units are copied through the scratch memory, which costs 3 to 10 %.
    """

    def __init__(self, key: FftwPlanKey, context: KernelContext) -> None:
        self._real = np.finfo(key.dtype).dtype
        self._x, x_pages = _scratch((key.units, *key.shape), key.dtype)
        self._y, y_pages = self._x, x_pages
        if not key.is_in_place:
            self._y, y_pages = _scratch((key.units, *key.output_shape), key.output_dtype)
        self._plan = planned(key, self._x, self._y, context)
        for pages in (x_pages, y_pages):
            pages.madvise(mmap.MADV_DONTNEED)  # planning is over: keep addresses, not memory

    def run(self, x: np.ndarray, y: np.ndarray, factor: float = 1.0, copies: bool = False) -> None:
        """Transform units `x` into `y`, the same for an in-place plan, and scale the result.

        `copies`: small units are faster so, and FFTW overwrites spectra of real values.
        """
        parts, real = y.view(self._real), self._real.type(factor)  # as reals takes half the time
        if copies or (pointer(x, "x") | pointer(y, "y")) % ALIGNMENT:
            self._x[...] = x
            self._plan.execute()
            np.multiply(self._y.view(self._real), real, out=parts)
            return
        self._plan.update_arrays(x, y)
        self._plan.execute()
        self._plan.update_arrays(self._x, self._y)  # keep no reference to the job's
        if factor != 1.0:
            np.multiply(parts, real, out=parts)


def _scratch(shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, mmap.mmap]:
    """Return an array and its pages, which are private so that MADV_DONTNEED frees them."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype).reshape(shape), pages


def planned(key: FftwPlanKey, x: np.ndarray, y: np.ndarray, context: KernelContext) -> pyfftw.FFTW:
    """Return a plan from wisdom if there is one; overwrites `x` and `y`.

    Else it is made: when tuning with the effort asked for, in a job with MEASURE.
    """
    with _planning_lock:
        if context.cache:
            _load_wisdom(context.cache)
        try:
            # uses wisdom of a greater effort, but not of a lesser one
            plan = _fftw(key, x, y, (key.effort, "FFTW_WISDOM_ONLY"))
        except RuntimeError:
            size = "x".join(map(str, key.shape))
            context.say(f"planning {size} {key.dtype} for FFTW ({key.units} at a time) ...")
            if context.tunes and key.effort != MEASURE:
                plan = _best(key, x, y)
            else:
                limit = MAX_TUNING_SECONDS if context.tunes else MAX_WAIT_SECONDS
                plan = _fftw(key, x, y, (MEASURE,), limit)
            # Its own wisdom is added to what other processes have saved meanwhile.
            tuning.save(context.cache, "wisdom", VERSIONS, lambda: _exported(context.cache))
        _insist_on_fftw()
        return plan


def _load_wisdom(folder: str) -> None:
    """Add what is known on disk to the process's wisdom; without it, plans are made again."""
    known = tuning.load(folder, "wisdom").get(VERSIONS)
    if known is not None and known is not _imported.get(folder):
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            double, single = known
            pyfftw.import_wisdom((double.encode(), single.encode(), b""))
        _imported[folder] = known


def _exported(folder: str) -> list[str]:
    _load_wisdom(folder)
    return [text.decode() for text in pyfftw.export_wisdom()[:2]]


def _best(key: FftwPlanKey, x: np.ndarray, y: np.ndarray) -> pyfftw.FFTW:
    """Return the fastest of a few plans, with its wisdom in the process's."""
    initial = pyfftw.export_wisdom()
    candidates: list[tuple[pyfftw.FFTW, tuple[bytes, bytes, bytes]]] = []
    end = time.perf_counter() + MAX_SECONDS
    while not candidates or (len(candidates) < MAX_ATTEMPTS and time.perf_counter() < end):
        pyfftw.forget_wisdom()
        pyfftw.import_wisdom(initial)
        plan = _fftw(key, x, y, (key.effort,), MAX_TUNING_SECONDS)
        candidates.append((plan, pyfftw.export_wisdom()))
    calls = [(key.units, functools.partial(_run, plan, key)) for plan, _ in candidates]
    seconds = tuning.timed(key.shape, key.dtype, calls, key.threads)
    plan, its_wisdom = candidates[seconds.index(min(seconds))]
    pyfftw.forget_wisdom()
    pyfftw.import_wisdom(its_wisdom)
    plan.update_arrays(x, y)
    return plan


def _run(plan: pyfftw.FFTW, key: FftwPlanKey, x: np.ndarray, y: np.ndarray) -> None:
    target = x if key.is_in_place else y
    # Of units that aren't aligned the last ones are transformed again.
    if (pointer(x, "x") | pointer(target, "y")) % ALIGNMENT == 0:
        plan.update_arrays(x, target)
    plan.execute()


def _fftw(
    key: FftwPlanKey, x: np.ndarray, y: np.ndarray, flags: tuple[str, ...], limit: Any = None
) -> pyfftw.FFTW:
    direction = "FFTW_BACKWARD" if key.is_backward else "FFTW_FORWARD"
    settings = {"flags": flags, "threads": key.threads, "planning_timelimit": limit}
    return pyfftw.FFTW(x, y, key.axes, direction, **settings)


@functools.cache
def _insist_on_fftw() -> None:
    """Raise RuntimeError if MKL, loaded before pyFFTW, has taken over FFTW's symbols."""
    if not any(text.count(b"\n") > 1 for text in pyfftw.export_wisdom()[:2]):
        raise RuntimeError("pyFFTW runs another library than FFTW: was MKL loaded before it?")
