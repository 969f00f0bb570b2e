"""A job on an emulated device: the locations of its arrays, the real work of each operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, Slot
from hetsched.devices.base import DeviceJob, DeviceOutOfMemory, HostArray
from hetsched.devices.cpu.device import CpuKernels
from hetsched.devices.emulated.costs import ModelledCosts
from hetsched.devices.emulated.virtual_clock import Work
from hetsched.devices.slot_layout import (
    CACHE_LINE,
    SlotLayout,
    Views,
    slot_layout,
    slot_views,
    touched_pages,
    unit_bytes,
)
from hetsched.plans.slots import aligned
from hetsched.workload import ArraySpec, Kernel
from hetsched.workload.protocol import KernelArrays


@dataclass(frozen=True)
class LoadedJob:
    """A job whose resident arrays are in device memory. `memory`: the part for slots."""

    job: DeviceJob
    kernel: Kernel
    layout: SlotLayout
    costs: ModelledCosts
    residents: Views
    memory: np.ndarray

    def views(self, slot: Slot, units: int) -> tuple[Views, Views]:
        """Return inputs and outputs of a chunk of `units` in `slot`. Raises DeviceOutOfMemory."""
        return slot_views(self.layout, self.memory, slot, units)

    def copy_in(self, chunk: Chunk, inputs: Views, slot_memory: np.ndarray) -> Work:
        """Return the work of a copy in, which owns the whole slot from its start."""

        def run(sources: Sequence[np.ndarray]) -> None:
            for name, view in inputs.items():
                self.job.inputs[name].read(chunk.first, chunk.count, view)

        return Work((), (slot_memory,), run)

    def compute(self, inputs: Views, outputs: Views, check: Callable[[], None]) -> Work:
        """Return the work of the kernel on these views; `check` raises if the copy in failed."""
        names = list(inputs)

        def run(sources: Sequence[np.ndarray]) -> None:
            check()
            arrays = dict(zip(names, sources, strict=True))
            inputs = KernelArrays({**arrays, **self.residents})
            self.kernel(inputs, KernelArrays(outputs))

        return Work(list(inputs.values()), list(outputs.values()), run)

    def copy_out(self, chunk: Chunk, outputs: Views, check: Callable[[], None]) -> Work:
        """Return the work of a copy out; `check` raises if the computation failed."""
        names = list(outputs)

        def run(sources: Sequence[np.ndarray]) -> None:
            check()
            for name, values in zip(names, sources, strict=True):
                self.job.outputs[name].write(chunk.first, chunk.count, values)

        views = (array.direct(chunk.first, chunk.count) for array in self.job.outputs.values())
        targets = [view for view in views if view is not None]
        return Work(list(outputs.values()), targets, run)


class JobLoader:
    """Loads jobs, one after the other, into the same memory.

    Parameters
    ----------
    name : str
        Name of the device, for messages.
    config : DeviceConfig
        Its `memory` limits what a job may use.
    """

    def __init__(self, name: str, config: DeviceConfig) -> None:
        self._name = name
        self._config = config
        self._capacity = config.memory_bytes() or 0
        self._memory = np.empty(0, np.uint8)
        self._kernels = CpuKernels()

    def load(self, job: DeviceJob) -> LoadedJob:
        """Make the kernel and copy resident arrays in. Raises UsageError, DeviceOutOfMemory."""
        kernel, in_place = self._kernels.get(job, job.variant)
        layout = slot_layout(_specs(job), in_place, job.demand, CACHE_LINE)
        arrays = [array for array in job.inputs.values() if array.spec.role == "resident"]
        resident_bytes = sum(aligned(unit_bytes(array.spec)) for array in arrays)
        slots_bytes = self._slots_bytes(job, layout, resident_bytes)
        self._memory = touched_pages(self._memory, resident_bytes + slots_bytes)
        residents = self._copy_residents(arrays)
        costs = ModelledCosts(self._config, job, layout.input_bytes, layout.output_bytes)
        memory = self._memory[resident_bytes : resident_bytes + slots_bytes]
        return LoadedJob(job, kernel, layout, costs, residents, memory)

    def _slots_bytes(self, job: DeviceJob, layout: SlotLayout, resident_bytes: int) -> int:
        """Return the bytes reserved for slots. Raises DeviceOutOfMemory if they don't fit."""
        work = job.demand.workspace(job.chunk) if job.demand.work == "max" else 0
        nbytes = job.memory or self._capacity - resident_bytes - work
        required = layout.nbytes(job.chunk)
        if resident_bytes + work + nbytes > self._capacity or nbytes < required:
            raise DeviceOutOfMemory(
                f"{self._name}: {resident_bytes} bytes of resident data, {work} of work area and"
                f" {max(nbytes, required)} for slots don't fit its {self._capacity} bytes"
            )
        return nbytes

    def _copy_residents(self, arrays: Sequence[HostArray]) -> Views:
        residents: Views = {}
        start = 0
        for array in arrays:
            spec = array.spec
            raw = self._memory[start : start + unit_bytes(spec)]
            residents[spec.name] = raw.view(spec.dtype).reshape(spec.unit_shape)
            array.read(0, 0, residents[spec.name])
            start += aligned(unit_bytes(spec))
        return residents


def _specs(job: DeviceJob) -> list[ArraySpec]:
    hosts = [*job.inputs.values(), *job.outputs.values()]
    return list({array.spec.name: array.spec for array in hosts}.values())
