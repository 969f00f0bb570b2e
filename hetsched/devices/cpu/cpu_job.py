"""A job on one core: its arrays, and the kernels of its variants.

In a race of variants a job has several kernels, one for each variant. One that can't be made, or
that fails on a chunk, is replaced by the first that works, so that the job goes on without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from hetsched.device import Chunk
from hetsched.devices.base import DeviceFault, DeviceJob, DeviceOutOfMemory, HostArray
from hetsched.devices.cpu.kernels import CpuKernels
from hetsched.devices.host_arrays import resident_values
from hetsched.devices.host_slots import CACHE_LINE, Views
from hetsched.devices.slot_layout import SlotLayout, slot_layout
from hetsched.errors import InternalError, UsageError
from hetsched.workload import Kernel

_OTHER_CAUSES = (MemoryError, DeviceFault, DeviceOutOfMemory)
"""Errors that another variant wouldn't avoid."""


@dataclass(frozen=True, eq=False)
class PreparedKernel:
    """The kernel of one variant, and the layout of a chunk in a slot, if any chunk needs one."""

    variant: str
    kernel: Kernel
    make_layout: Callable[[], SlotLayout]

    @functools.cached_property
    def layout(self) -> SlotLayout:
        """The layout; work on the arena's own pages needs none."""
        return self.make_layout()


class CpuJob:
    """A job on one core.

    Raises
    ------
    UsageError
        No variant could be made.
    """

    def __init__(self, job: DeviceJob, kernels: CpuKernels) -> None:
        self.job = job
        self.residents = {
            name: resident_values(array)
            for name, array in job.inputs.items()
            if array.spec.role == "resident"
        }
        self.inputs = {n: a for n, a in job.inputs.items() if n not in self.residents}
        self.outputs = dict(job.outputs)
        split = [*self.inputs.values(), *self.outputs.values()]
        self.is_direct = all(array.direct(0, 1) is not None for array in split)
        # Each copy in a slot needs its own buffer, so that the host's arrays aren't overwritten.
        self._specs = list({array.spec.name: array.spec for array in split}.values())
        self._kernels = self._made(kernels)

    def _made(self, kernels: CpuKernels) -> dict[int, PreparedKernel]:
        """Return the kernels that could be made, by `Chunk.kernel`."""
        made: dict[int, PreparedKernel] = {}
        failures: dict[str, UsageError] = {}
        for number, variant in enumerate(self.job.variants):
            if not variant:
                continue
            try:
                kernel, in_place = kernels.get(self.job, variant)
            except UsageError as error:
                failures[variant] = error
                continue
            make_layout = functools.partial(
                slot_layout, self._specs, in_place, self.job.demand, CACHE_LINE
            )
            made[number] = PreparedKernel(variant, kernel, make_layout)
        if not made:
            raise next(iter(failures.values()))
        for variant, failure in failures.items():
            self.job.reject(variant, failure)
        return made

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot for the largest chunk."""
        return max(kernel.layout.nbytes(self.job.chunk) for kernel in self._kernels.values())

    def number(self, chunk: Chunk) -> int:
        """Return the kernel that computes `chunk`: its own, or the first that works."""
        return chunk.kernel if chunk.kernel in self._kernels else next(iter(self._kernels))

    def prepared(self, chunk: Chunk) -> PreparedKernel:
        """Return the kernel that computes `chunk`."""
        return self._kernels[self.number(chunk)]

    def drop_failed(self, chunk: Chunk, error: Exception) -> PreparedKernel | None:
        """Drop the kernel that failed on `chunk`; None if no other may succeed."""
        if len(self._kernels) == 1 or isinstance(error, _OTHER_CAUSES):
            return None
        return self._kernels.pop(self.number(chunk))

    def direct_views(self, chunk: Chunk) -> tuple[Views, Views]:
        """Return the chunk's part of the inputs and outputs, in the arena."""
        return _views(self.inputs, chunk), _views(self.outputs, chunk)


def _views(arrays: Mapping[str, HostArray], chunk: Chunk) -> Views:
    return {name: _view(array, chunk) for name, array in arrays.items()}


def _view(array: HostArray, chunk: Chunk) -> np.ndarray:
    view = array.direct(chunk.first, chunk.count)
    if view is None:
        raise InternalError(f"{array.spec.name}: no direct view of units from {chunk.first} on")
    return view
