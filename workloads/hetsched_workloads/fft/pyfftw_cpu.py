"""FFT by FFTW through pyFFTW: measured plans, with wisdom kept on disk.

Planning overwrites its arrays and is slow, so plans are made on scratch memory in `make` and
executed on the job's arrays. FFTW is up to twice as slow on data that isn't 16-byte aligned
(every second plane of odd size in complex64): such planes are copied through the scratch memory
of their plan, which costs 3 to 10 %.
"""

from __future__ import annotations

import itertools
import mmap
from dataclasses import replace

import numpy as np

from hetsched.workload import Arrays, KernelContext, version
from hetsched_workloads.fft import tuned
from hetsched_workloads.fft.batched import OwnPlans, pointer, powers, scale
from hetsched_workloads.fft.call_sizes import call_size
from hetsched_workloads.fft.declaration import FftParams
from hetsched_workloads.fft.fftw_planning import FftwPlanKey, planned

MIN_PATIENT_BYTES = 512 << 10
"""Of a call. Smaller plans only serve the remainder of a chunk: MEASURE will do."""
ALIGNMENT = 16
"""Bytes; required by FFTW's vector code."""

_plans = OwnPlans()


class FftwPlan:
    """An FFTW plan and the scratch arrays it was made on."""

    def __init__(self, key: FftwPlanKey, context: KernelContext) -> None:
        self._x, x_pages = _scratch(key)
        self._y, y_pages = (self._x, x_pages) if key.in_place else _scratch(key)
        self._plan = planned(key, self._x, self._y, context)
        for pages in (x_pages, y_pages):
            pages.madvise(mmap.MADV_DONTNEED)  # planning is over: keep addresses, not memory

    def run(self, x: np.ndarray, y: np.ndarray) -> None:
        """Transform planes `x` into `y` (the same array for an in-place plan)."""
        if (pointer(x, "x") | pointer(y, "y")) % ALIGNMENT:
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


class FftwKernel:
    """Transforms up to `units_per_call` planes per call: as many as it may, then the rest of a
    chunk by the powers of two that add up to it, so that few plans serve chunks of every size.
    """

    def __init__(self, p: FftParams, chunk: int, context: KernelContext) -> None:
        self._p, self._context, self._scale = p, context, p.scale
        library = f"pyfftw {version('pyfftw')}"
        done = tuned.fftw_effort(library, p, context.threads, context.cache)
        next_effort = tuned.next_effort(done, p) if context.tunes else ""
        self.units_per_call = call_size(
            library,
            p,
            chunk,
            context if done else replace(context, tunes=False),  # plans first
            lambda size: self._plan(self._key(size, False, tuned.MEASURE)).run,  # as fast to call
            tuned.MAX_FFTW_CALL_BYTES,
        )
        effort = next_effort or done or tuned.MEASURE
        # What tuning plans serves chunks of every size
        sizes = powers(tuned.largest_call(p) if context.tunes else self.units_per_call)
        halves = (False, True) if p.direction == "roundtrip" else (False,)
        self._keys = {size: [self._key(size, half, effort) for half in halves] for size in sizes}
        for key in itertools.chain.from_iterable(self._keys.values()):
            self._plan(key)
        if next_effort or (not done and sizes[0] == tuned.largest_call(p)):
            name = tuned.fftw_key(library, p, context.threads)
            tuned.save(context.cache, "effort", name, lambda: effort)

    def __call__(self, inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        first = 0
        for size in powers(min(self.units_per_call, len(x))):
            if len(x) - first < size:
                continue
            plans = [self._plan(key) for key in self._keys[size]]
            while len(x) - first >= size:
                source, planes = x[first : first + size], y[first : first + size]
                for plan in plans:
                    plan.run(source, planes)
                    source = planes
                scale(planes, self._scale)
                first += size
            for plan in plans:
                plan.detach()

    def _plan(self, key: FftwPlanKey) -> FftwPlan:
        plan: FftwPlan = _plans.kept.get_or_compute(key, lambda: FftwPlan(key, self._context))
        return plan

    def _key(self, size: int, in_place: bool, effort: str) -> FftwPlanKey:
        """Return the plan for some planes; `in_place`: of the second half of a roundtrip."""
        p = self._p
        return FftwPlanKey(
            (size, *p.shape),
            p.dtype,
            in_place or p.direction == "inverse",
            in_place,
            self._context.threads,
            tuned.MEASURE if size * p.plane_bytes < MIN_PATIENT_BYTES else effort,
        )


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
