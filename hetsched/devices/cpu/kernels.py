"""Makes the kernels of CPU variants and keeps the last few warm for the next job."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from hetsched.devices.base import DeviceFault, DeviceJob, DeviceOutOfMemory
from hetsched.errors import HetschedError, UsageError
from hetsched.workload import Kernel, KernelContext, Variant

KEPT = 16
"""Kernels that stay; they may hold plans and work areas. Arbitrary."""


class CpuKernels:
    """Kernels by workload, parameters, variant and chunk. Belongs to one thread."""

    def __init__(self) -> None:
        self._kernels: OrderedDict[Any, tuple[Kernel, Mapping[str, str]]] = OrderedDict()

    def get(self, job: DeviceJob) -> tuple[Kernel, Mapping[str, str]]:
        """The job's kernel, and which outputs it can compute in place (output -> input).

        Raises
        ------
        UsageError
            The variant isn't to be had on this machine, or can't be made.
        """
        params = msgspec.json.encode(job.params)
        key = (type(job.workload), params, job.variant, job.chunk, job.threads, job.cache)
        found = self._kernels.get(key)
        if found is None:
            variant = find_variant(job)
            context = KernelContext("cpu", job.threads, job.cache, np, None, job.say)
            found = made(variant, job, context), variant.in_place
            self._kernels[key] = found
            if len(self._kernels) > KEPT:
                self._kernels.popitem(last=False)
        self._kernels.move_to_end(key)
        return found


def made(variant: Variant, job: DeviceJob, context: KernelContext) -> Kernel:
    """The kernel of `variant`. Whatever a library raises is a reason to do without the variant.

    Raises
    ------
    UsageError
        It can't be made: a library is missing, broken or doesn't take these parameters.
    HetschedError, MemoryError, DeviceFault, DeviceOutOfMemory
        As `make` raised it: another variant wouldn't help.
    """
    try:
        return variant.make(job.params, job.chunk, context)
    except (HetschedError, MemoryError, DeviceFault, DeviceOutOfMemory):
        raise
    except Exception as error:
        text = " ".join(f"{error}".split()) or "no reason given"
        reason = f"{type(error).__name__}: {text}"
        raise UsageError(f"variant {variant.name} can't be made here: {reason}") from error


def find_variant(job: DeviceJob) -> Variant:
    """The CPU variant that `job` names. Raises UsageError saying which there are."""
    variants = job.workload.variants("cpu")
    for variant in variants:
        if variant.name == job.variant:
            return variant
    there = ", ".join(variant.name for variant in variants) or "none"
    raise UsageError(
        f"{job.workload.name} has no variant {job.variant!r} on a CPU here; there are: {there}"
    )
