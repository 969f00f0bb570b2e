"""FFT on a GPU by cuFFT, with plans managed here.

CuPy's plan cache is per thread and unsafe across streams, and a plan doesn't check its batch:
running one on fewer planes writes past their end. So there is a plan for each size of chunk, made
when it is first seen: the device runs the kernel once for all planned sizes. All plans share one
work area, which is safe because one stream runs them all. Plans of one shape are kept from job to
job as long as a kernel uses them: they hold a work area that the device must be able to reclaim.
"""

from __future__ import annotations

import math
import threading
import weakref
from typing import Any

import cupy
from cupy.cuda import cufft

from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched_workloads.fft import DTYPES, FftParams

MAX_POINTS = 2**31 - 1
"""Elements of one cuFFT call: its interface counts in 32 bits."""
MAX_PLANS = 32
"""Plans of one shape; the oldest one makes room. Arbitrary: chunks have a few sizes."""


class PlanSet:
    """Plans of one shape and dtype by number of planes, with a work area that they use in turn.

    `allocate`: of the pool that the work area is in.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, allocate: Any) -> None:
        self.key = shape, dtype, allocate
        self._shape = shape
        self._kind = cufft.CUFFT_Z2Z if DTYPES[dtype].is_double else cufft.CUFFT_C2C
        self._plans: dict[int, Any] = {}
        self._allocate = allocate or cupy.cuda.alloc
        self._area_bytes, self._area = -1, None

    def _work_area(self, size: int) -> Any:  # plans keep the area that they have received
        if size > self._area_bytes:
            self._area, self._area_bytes = self._allocate(max(size, 1)), size
        return self._area

    def plan(self, size: int) -> Any:
        if size not in self._plans:
            if len(self._plans) >= MAX_PLANS:
                self._plans.pop(next(iter(self._plans)))
            layout = self._shape, 1, math.prod(self._shape)
            with cupy.cuda.using_allocator(self._work_area):
                self._plans[size] = cufft.PlanNd(
                    self._shape, *layout, *layout, self._kind, size, "C", 1, None
                )
            # It is initialised in the default stream, which other streams don't wait for.
            cupy.cuda.runtime.streamSynchronize(0)
        return self._plans[size]

    def run(self, source: Any, target: Any, direction: int) -> None:
        """Transform all planes on the current stream. Raises ValueError."""
        expected = (len(source), *self._shape)
        for array in (source, target):
            if array.shape != expected or not array.flags.c_contiguous:  # it would write past them
                raise ValueError(f"a plan for {expected} can't run on {array.shape}")
        self.plan(len(source)).fft(source, target, direction)


_plan_sets: weakref.WeakValueDictionary[int, PlanSet] = weakref.WeakValueDictionary()
"""Device -> its plans, for one shape at a time: idle plans must not fill the device's memory."""
_lock = threading.Lock()


def plan_set(shape: tuple[int, ...], dtype: str, allocate: Any) -> PlanSet:
    """Return such plans on the current device; others there are dropped."""
    device = cupy.cuda.runtime.getDevice()
    with _lock:
        plans = _plan_sets.get(device)
        if plans is None or plans.key != (shape, dtype, allocate):
            _plan_sets.pop(device, None)
            del plans
            plans = _plan_sets[device] = PlanSet(shape, dtype, allocate)
        return plans


def make(p: FftParams, chunk: int, context: KernelContext) -> Kernel:
    largest = max(1, min(chunk, MAX_POINTS // p.points))
    context.say(f"planning {p.shape[0]}x{p.shape[1]} {p.dtype} for cuFFT ...")
    plans = plan_set(p.shape, p.dtype, context.allocate)
    plans.plan(largest)
    real, factor = getattr(cupy, DTYPES[p.dtype].real), p.factor(p.transforms[-1])

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        for first in range(0, len(x), largest):
            source, target = x[first : first + largest], y[first : first + largest]
            if p.direction != "inverse":
                plans.run(source, target, cufft.CUFFT_FORWARD)
                source = target
            if p.direction != "forward":
                plans.run(source, target, cufft.CUFFT_INVERSE)
        if factor != 1.0:
            parts = y.view(real)
            cupy.multiply(parts, real(factor), out=parts)

    return kernel
