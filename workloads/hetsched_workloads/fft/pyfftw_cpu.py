"""FFT by FFTW through pyFFTW: measured plans, with wisdom kept on disk.

Planning overwrites its arrays and is slow, so plans are made on scratch memory in `make` and
executed on the job's arrays. FFTW is up to twice as slow on data that isn't 16-byte aligned
(every second plane of odd size in complex64): such planes are copied through the scratch memory
of their plan, which costs 3 to 10 %.
"""

from __future__ import annotations

import functools
import mmap
from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from hetsched.workload import Arrays, KernelContext
from hetsched_workloads.fft import tuned
from hetsched_workloads.fft.batched import pieces, pointer, powers, scale
from hetsched_workloads.fft.call_sizes import Transform, call_size
from hetsched_workloads.fft.declaration import FftParams
from hetsched_workloads.fft.fftw_planning import FftwPlanKey, planned
from hetsched_workloads.installed import version
from hetsched_workloads.pool import Pool

MIN_PATIENT_BYTES = 512 << 10
"""Of a call. Smaller plans only serve the remainder of a chunk: MEASURE will do."""
ALIGNMENT = 16
"""Bytes; required by FFTW's vector code."""


class FftwPlan:
    """An FFTW plan and the scratch arrays it was made on."""

    def __init__(self, key: FftwPlanKey, context: KernelContext) -> None:
        self._x, x_pages = _scratch(key)
        self._y, y_pages = (self._x, x_pages) if key.in_place else _scratch(key)
        self._plan = planned(key, self._x, self._y, context)
        for pages in (x_pages, y_pages):
            pages.madvise(mmap.MADV_DONTNEED)  # planning is over: keep addresses, not memory

    def run(self, x: np.ndarray, y: np.ndarray, aligned: bool) -> None:
        """Transform planes `x` into `y` (the same array for an in-place plan)."""
        if not aligned:
            self.detach()
            self._x[...] = x
            self._plan.execute()
            y[...] = self._y
            return
        self._plan.update_arrays(x, y)
        self._plan.execute()

    def detach(self) -> None:
        """Drop the references to the job's arrays."""
        self._plan.update_arrays(self._x, self._y)


_plans: Pool[FftwPlan] = Pool()


class FftwKernel:
    """Transforms up to `chunk` planes per call. For one thread at a time."""

    def __init__(self, p: FftParams, chunk: int, context: KernelContext) -> None:
        self._plane_bytes, self._scale = p.plane_bytes, p.scale
        library = f"pyfftw {version('pyfftw', 'pyFFTW')}"
        done = tuned.fftw_effort(library, p, context.threads, context.cache)
        self._largest = call_size(
            library,
            p,
            chunk,
            context if done else replace(context, tunes=False),  # plans first
            functools.partial(_timed_call, p, context),
            tuned.MAX_FFTW_CALL_BYTES,
        )
        self.units_per_call = self._largest
        next_effort = tuned.next_effort(done, p) if context.tunes else ""
        effort = next_effort or done or tuned.MEASURE
        lent: dict[Hashable, FftwPlan] = {}

        def plan(size: int, backward: bool, in_place: bool) -> FftwPlan:
            is_small = size * p.plane_bytes < MIN_PATIENT_BYTES
            key = FftwPlanKey(
                (size, *p.shape),
                p.dtype,
                backward,
                in_place,
                context.threads,
                tuned.MEASURE if is_small else effort,
            )
            lent[key] = _plans.take(key, lambda: FftwPlan(key, context))
            return lent[key]

        # What tuning plans serves chunks of every size
        sizes = powers(tuned.largest_call(p) if context.tunes else self._largest)
        inverse = p.direction == "inverse"
        self._first = {size: plan(size, inverse, False) for size in sizes}
        self._second = (
            {size: plan(size, True, True) for size in sizes} if p.direction == "roundtrip" else {}
        )
        _plans.lend(self, lent)
        if next_effort or (not done and sizes[0] == tuned.largest_call(p)):
            name = tuned.fftw_key(library, p, context.threads)
            tuned.save(context.cache, "effort", name, lambda: effort)

    def __call__(self, inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        source, target = pointer(x, "x"), pointer(y, "y")
        plane = self._plane_bytes
        used = set()
        try:
            for first, size in pieces(len(x), self._largest):
                offset = first * plane
                aligned = ((source + offset) | (target + offset)) % ALIGNMENT == 0
                self._piece(x[first : first + size], y[first : first + size], size, aligned)
                used.add(size)
        finally:
            for size in used:
                self._detach(size)

    def _piece(self, x: np.ndarray, y: np.ndarray, size: int, aligned: bool) -> None:
        self._first[size].run(x, y, aligned)
        if self._second:
            self._second[size].run(y, y, aligned)
        scale(y, self._scale)

    def _detach(self, size: int) -> None:
        self._first[size].detach()
        if self._second:
            self._second[size].detach()


def _timed_call(p: FftParams, context: KernelContext, size: int) -> Transform:
    """Return a call with a plan that takes little time to make: calls of a size are alike."""
    inverse = p.direction == "inverse"
    key = FftwPlanKey((size, *p.shape), p.dtype, inverse, False, context.threads, tuned.MEASURE)
    plan = FftwPlan(key, context)
    return lambda x, y: plan.run(x, y, (pointer(x, "x") | pointer(y, "y")) % ALIGNMENT == 0)


def make(p: FftParams, chunk: int, context: KernelContext) -> FftwKernel:
    """Return a kernel; missing plans are made, with a message to the user.

    Raises
    ------
    RuntimeError
        pyFFTW is bound to another library than FFTW.
    """
    return FftwKernel(p, chunk, context)


def _scratch(key: FftwPlanKey) -> tuple[np.ndarray, mmap.mmap]:
    """Return an array and its pages, which are private so that MADV_DONTNEED frees them."""
    dtype = np.dtype(key.dtype)
    count, rows, cols = key.shape
    nbytes = count * rows * cols * dtype.itemsize
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(pages, dtype).reshape(key.shape), pages
