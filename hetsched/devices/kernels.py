"""Makes the kernels of a job's variants, for every kind of device, and sees when they compile."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from hetsched.bounded_cache import BoundedCache
from hetsched.devices.base import DeviceFault, DeviceJob, DeviceOutOfMemory, IterativeJob
from hetsched.errors import HetschedError, UsageError
from hetsched.iterations.home import Part
from hetsched.workload import Arrays, Iterative, Kernel, KernelContext, Stage, Variant

SLOW_FIRST_RUN = 2.0
"""A stage's first run on so many rows may have compiled if it took so many times as long for a row
as the fastest: PoCL takes 150 ms or more for another number of rows. Arbitrary."""
MAX_JOBS = 8
"""Similar jobs whose stages' times are kept. Arbitrary."""
MAX_RUNS = 4096
"""Stages and rows that a job remembers, before it forgets them all. Arbitrary."""


def kernel_key(job: DeviceJob, variant: Variant, chunk: int) -> Hashable:
    left = variant.tuning_left(job.params, job.threads, job.cache)  # then it is made anew
    params = msgspec.json.encode(job.params)
    return type(job.workload), params, variant.name, chunk, job.threads, job.cache, left


def make_kernel(variant: Variant, job: DeviceJob, context: KernelContext) -> Kernel:
    """Make the kernel of `variant`. Raises UsageError where another variant may help.

    So if a library is missing, broken or doesn't support these parameters.
    """
    try:
        made: Any = variant.make(job.params, job.chunk, context)
    except (HetschedError, MemoryError, DeviceFault, DeviceOutOfMemory):
        raise
    except Exception as error:
        text = " ".join(f"{error}".split()) or "no reason given"
        reason = f"{type(error).__name__}: {text}"
        raise UsageError(f"variant {variant.name} can't be made here: {reason}") from error
    if job.workload.writes_all or isinstance(job.workload, Iterative):
        kernel: Kernel = made
        return kernel
    return _zeroing(made, job.workload.in_place.get(context.kind, {}), context.xp)


def _zeroing(kernel: Kernel, in_place: Mapping[str, str], xp: Any) -> Kernel:
    """Return a kernel whose outputs are zero first: their memory still has other jobs' data."""

    def call(inputs: Arrays, outputs: Arrays) -> None:
        for name, output in outputs.items():
            # An inout array may be the caller's own, which is computed in place: but in slots of
            # a device without such a module it isn't.
            is_input = name in inputs and xp and xp.may_share_memory(output, inputs[name])
            if name not in in_place and not is_input:
                output.fill(0)
        kernel(inputs, outputs)

    call.units_per_call = getattr(kernel, "units_per_call", 0)  # type: ignore[attr-defined]
    return call


def range_of(kernel: Kernel, first: int, count: int) -> tuple[int, ...]:
    """Return what a kernel is called with besides its arrays: the range of a chunk, or nothing."""
    return (first, count) if getattr(kernel, "takes_range", False) else ()


def find_variant(job: DeviceJob, kind: str, name: str | None = None) -> Variant:
    """Return the variant of `kind` called `name`, or the job's. Raises UsageError."""
    variants = job.workload.variants(kind)
    name = name or job.variant
    for variant in variants:
        if variant.name == name:
            return variant
    names = ", ".join(variant.name for variant in variants) or "none"
    raise UsageError(
        f"{job.workload.name} has no {kind} variant {name!r} here; installed: {names}"
    )


class StageTimes:
    """Finds runs of stages that may have compiled, on a device where kernels do so when called.

    Such a run is repeated, and the second one's time taken: compile time isn't learnt as speed.
    """

    def __init__(self) -> None:
        self._jobs: BoundedCache[Hashable, tuple[dict[str, float], set[tuple[str, int]]]]
        """Seconds of a row of each stage in its fastest run; stages and rows that have run."""
        self._jobs = BoundedCache(max_entries=MAX_JOBS)

    def begin(self, job: IterativeJob, variant: Variant) -> None:
        key = kernel_key(job.job, variant, job.load)
        self._best, self._seen = self._jobs.get_or_compute(key, lambda: ({}, set()))
        states = job.workload.state(job.job.params)
        self._buffered = {state.name for state in states if state.has_two_buffers}

    def is_to_repeat(self, part: Part, stage: Stage, rows: int, seconds: float) -> bool:
        """Return whether to repeat a run; else note its time."""
        if part is not Part.ITERATION:
            return False  # that isn't learnt
        key, pace, best = (stage.name, rows), seconds / rows, self._best.get(stage.name)
        if key not in self._seen:
            if len(self._seen) >= MAX_RUNS:
                self._seen.clear()
            self._seen.add(key)
            # What a stage has updated in place can't be computed again.
            can_repeat = {*stage.inputs} & {*stage.outputs} <= self._buffered
            if can_repeat and (best is None or pace > SLOW_FIRST_RUN * best):
                return True
        if best is None or pace < best:
            self._best[stage.name] = pace
        return False
