"""A CPU core or a team of cores: no separate memory, no copy engines, blocking operations.

Where kernels can use all arrays of a job unconverted, they run directly on the arena. Otherwise
(files, other dtypes) a chunk passes through a warm, page-aligned slot, and has copy phases. A
CoreClock defines how long a computation lasts, so an emulated core is the same device.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.devices.base import DeviceJob, HostArray
from hetsched.devices.cpu.clocks import CoreClock, TeamClock, WallClock
from hetsched.devices.cpu.kernels import CpuKernels
from hetsched.devices.host_arrays import resident_values
from hetsched.devices.host_slots import CACHE_LINE, Views, slot_views, touched_pages
from hetsched.devices.slot_layout import slot_layout
from hetsched.errors import InternalError
from hetsched.workload import Kernel


def open_device(info: DeviceInfo, config: DeviceConfig) -> CpuDevice:
    """Open the core or team `info`."""
    return CpuDevice(info)


class CpuJob:
    """A job on one core: kernel, resident arrays, the arrays of each chunk."""

    def __init__(self, job: DeviceJob, kernel: Kernel, in_place: Mapping[str, str]) -> None:
        self.job = job
        self.kernel = kernel
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
        specs = list({array.spec.name: array.spec for array in split}.values())
        self.layout = slot_layout(specs, in_place, job.demand, CACHE_LINE)

    def direct_views(self, chunk: Chunk) -> tuple[Views, Views]:
        """Return the chunk's part of the inputs and outputs, in the arena."""
        return (
            {name: _view(array, chunk) for name, array in self.inputs.items()},
            {name: _view(array, chunk) for name, array in self.outputs.items()},
        )


class CpuDevice:
    """A core or a team of cores.

    Its operations run on the calling thread, which should be pinned to the core.
    """

    def __init__(self, info: DeviceInfo, clock: CoreClock | None = None) -> None:
        self._info = info
        self._clock = clock or (TeamClock() if info.members else WallClock())
        self._kernels = CpuKernels()
        self._memory = np.empty(0, np.uint8)
        self._job: CpuJob | None = None
        self._views: tuple[Views, Views] = ({}, {})
        self._copy_in_span: tuple[float, float] | None = None
        self._times: dict[int, ChunkTimes] = {}

    def describe(self) -> DeviceInfo:
        return self._info

    def prepare(self, job: DeviceJob | None) -> None:
        self._job = None
        self._views = ({}, {})
        self._times.clear()
        self._clock.begin(job)
        if job is None:
            return
        kernel, in_place = self._kernels.get(job)
        cpu_job = CpuJob(job, kernel, in_place)
        if not cpu_job.is_direct:
            slots = max(1, job.slots)
            self._memory = touched_pages(self._memory, slots * cpu_job.layout.nbytes(job.chunk))
        self._job = cpu_job

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        job = self._current_job()
        self._copy_in_span = None
        if job.is_direct:
            self._views = job.direct_views(chunk)
            return
        end = slot.offset + job.layout.nbytes(chunk.count)
        self._memory = touched_pages(self._memory, end)  # usually large enough: see `prepare`
        start = self._clock.now()
        self._views = slot_views(job.layout, self._memory, slot, chunk.count)
        for name, array in job.inputs.items():
            array.read(chunk.first, chunk.count, self._views[0][name])
        self._copy_in_span = (start, self._clock.now())

    def compute(self, chunk: Chunk, slot: Slot) -> None:
        job = self._current_job()
        inputs, outputs = self._views
        start, busy_before = self._clock.now(), self._clock.busy_seconds()
        job.kernel({**inputs, **job.residents}, outputs)
        busy_after = self._clock.busy_seconds()
        end, late = self._clock.end_of(chunk, start)
        self._times[chunk.id] = ChunkTimes(
            copy_in=self._copy_in_span,
            compute=(start, end),
            late=late,
            busy=None if busy_before is None or busy_after is None else busy_after - busy_before,
        )

    def copy_out(self, chunk: Chunk, slot: Slot) -> None:
        job = self._current_job()
        _, outputs = self._views
        self._views = ({}, {})
        if job.is_direct:
            return
        start = self._clock.now()
        for name, array in job.outputs.items():
            array.write(chunk.first, chunk.count, outputs[name])
        span = (start, self._clock.now())
        self._times[chunk.id] = msgspec.structs.replace(self._times[chunk.id], copy_out=span)

    def wait(self, chunk: Chunk) -> ChunkTimes:
        return self._times.pop(chunk.id)

    def _current_job(self) -> CpuJob:
        if self._job is None:
            raise InternalError(f"{self._info.name}: got a chunk before any job was prepared")
        return self._job


def _view(array: HostArray, chunk: Chunk) -> np.ndarray:
    view = array.direct(chunk.first, chunk.count)
    if view is None:
        raise InternalError(f"{array.spec.name}: no direct view of units from {chunk.first} on")
    return view
