"""FFT on a GPU by cuFFT, with plans managed here.

CuPy's plan cache is per thread and unsafe across streams, and a plan doesn't check its batch:
running one on fewer planes writes past their end. So there is a plan for each size of chunk, made
when it is first seen: the device runs the kernel once for all planned sizes. All plans share one
work area, which is safe because one stream runs them all. Plans of one shape are kept from job to
job as long as a kernel uses them: they hold a work area that the device must be able to reclaim.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import cupy
from cupy.cuda import cufft

from hetsched.workload import Arrays, Kernel, KernelContext
from hetsched_workloads.fft.declaration import DTYPES, FftParams

MAX_POINTS = 2**31 - 1
"""Elements of one cuFFT call: its interface counts in 32 bits."""
MAX_PLANS = 32
"""Plans of one shape; the oldest one makes room. Arbitrary: chunks have a few sizes."""


class PlanSetKey(NamedTuple):
    """The common properties of a set's plans; `allocate` identifies the pool of the work area."""

    device: int
    rows: int
    cols: int
    dtype: str
    allocate: Callable[[int], Any] | None


class PlanSetWorkArea:
    """Memory that the plans of a set use in turn; a plan that needs more gets a new one."""

    def __init__(self, allocate: Callable[[int], Any] | None) -> None:
        self._allocate = allocate or cupy.cuda.alloc
        self._size = -1
        self._memory: Any = None

    def __call__(self, size: int) -> Any:
        """Return a pointer to at least `size` bytes; plans keep the area they have received."""
        if size > self._size:
            self._memory = self._allocate(max(size, 1))
            self._size = size
        return self._memory


class PlanSet:
    """Plans of one plane shape by number of planes."""

    def __init__(self, shape: PlanSetKey) -> None:
        self.shape = shape
        self._plans: dict[int, Any] = {}
        self._area = PlanSetWorkArea(shape.allocate)

    def plan(self, size: int) -> Any:
        if size not in self._plans:
            if len(self._plans) >= MAX_PLANS:
                self._plans.pop(next(iter(self._plans)))
            with cupy.cuda.using_allocator(self._area):
                self._plans[size] = self._make(size)
            # It is initialised in the default stream, which other streams don't wait for.
            cupy.cuda.runtime.streamSynchronize(0)
        return self._plans[size]

    def _make(self, size: int) -> Any:
        rows, cols = self.shape.rows, self.shape.cols
        kind = cufft.CUFFT_Z2Z if DTYPES[self.shape.dtype].is_double else cufft.CUFFT_C2C
        plane = rows * cols
        layout = ((rows, cols), 1, plane)
        return cufft.PlanNd((rows, cols), *layout, *layout, kind, size, "C", 1, None)

    def run(self, source: Any, target: Any, direction: int) -> None:
        """Transform all planes on the current stream.

        Raises
        ------
        ValueError
            The arrays aren't as large as the plan, which would write past their end.
        """
        expected = (len(source), self.shape.rows, self.shape.cols)
        for array in (source, target):
            if array.shape != expected or not array.flags.c_contiguous:
                raise ValueError(f"a plan for {expected} can't run on {array.shape}")
        self.plan(len(source)).fft(source, target, direction)


_plan_sets: weakref.WeakValueDictionary[int, PlanSet] = weakref.WeakValueDictionary()
"""Device -> its plans, for one shape at a time: idle plans must not fill the device's memory."""
_lock = threading.Lock()


def plan_set(shape: PlanSetKey) -> PlanSet:
    """Return the plans of `shape`; those of another shape are dropped."""
    with _lock:
        plans = _plan_sets.get(shape.device)
        if plans is None or plans.shape != shape:
            _plan_sets.pop(shape.device, None)
            del plans
            plans = _plan_sets[shape.device] = PlanSet(shape)
        return plans


def make(p: FftParams, chunk: int, context: KernelContext) -> Kernel:
    """Return a kernel for up to `chunk` planes; it runs on the stream current at each call."""
    rows, cols = p.shape
    largest = max(1, min(chunk, MAX_POINTS // p.points))
    shape = PlanSetKey(cupy.cuda.runtime.getDevice(), rows, cols, p.dtype, context.allocate)
    context.say(f"planning {rows}x{cols} {p.dtype} for cuFFT ...")
    plans = plan_set(shape)
    plans.plan(largest)
    real = getattr(cupy, DTYPES[p.dtype].real)

    def kernel(inputs: Arrays, outputs: Arrays) -> None:
        x, y = inputs["x"], outputs["y"]
        for first in range(0, len(x), largest):
            source, target = x[first : first + largest], y[first : first + largest]
            if p.direction != "inverse":
                plans.run(source, target, cufft.CUFFT_FORWARD)
                source = target
            if p.direction != "forward":
                plans.run(source, target, cufft.CUFFT_INVERSE)
        if p.scale != 1.0:
            parts = y.view(real)
            cupy.multiply(parts, real(p.scale), out=parts)

    return kernel
