"""Makes the kernels of a job's variants, for every kind of device."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from hetsched.devices.base import DeviceFault, DeviceJob, DeviceOutOfMemory
from hetsched.errors import HetschedError, UsageError
from hetsched.workload import Arrays, Iterative, Kernel, KernelContext, Variant


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
    in_place = job.workload.in_place.get(context.kind, {})
    return ZeroingKernel(made, in_place, context.xp)


class ZeroingKernel:
    """A kernel whose outputs are zero first: slots and segments still have other jobs' data."""

    def __init__(self, kernel: Kernel, in_place: Mapping[str, str], xp: Any) -> None:
        self._kernel = kernel
        self._in_place = in_place
        self._xp = xp
        self.units_per_call = getattr(kernel, "units_per_call", 0)

    def __call__(self, inputs: Arrays, outputs: Arrays) -> None:
        for name, output in outputs.items():
            if name not in self._in_place and not self._is_input(name, output, inputs):
                output.fill(0)
        self._kernel(inputs, outputs)

    def _is_input(self, name: str, output: Any, inputs: Arrays) -> bool:
        """Whether an inout array is the caller's own, which is computed in place."""
        return (
            name in inputs
            and self._xp is not None  # in slots of a device without such a module it isn't
            and bool(self._xp.may_share_memory(output, inputs[name]))
        )


def range_of(kernel: Kernel, first: int, count: int) -> tuple[int, ...]:
    """Return what a kernel is called with besides its arrays: the range of a chunk, or nothing."""
    return (first, count) if getattr(kernel, "takes_range", False) else ()


def find_variant(job: DeviceJob, kind: str, name: str | None = None) -> Variant:
    """Return the variant of `kind` called `name`, or the first that `job` names.

    Raises UsageError listing those installed.
    """
    variants = job.workload.variants(kind)
    name = name or job.variant
    for variant in variants:
        if variant.name == name:
            return variant
    names = ", ".join(variant.name for variant in variants) or "none"
    raise UsageError(
        f"{job.workload.name} has no {kind} variant {name!r} here; installed: {names}"
    )
