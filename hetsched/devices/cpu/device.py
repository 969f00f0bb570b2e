"""A CPU core or a team of them: no memory of its own, no copy engines; an operation is done when
its call returns.

Kernels run directly on the arena where all arrays of a job are there as the kernel wants them.
Else (files, other dtypes) a chunk passes through a warm, page-aligned slot, and has copy phases.
How long a computation lasts is a Pace's matter, so that an emulated core is the same device.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

import msgspec
import numpy as np

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.devices.base import DeviceJob, HostArray
from hetsched.devices.cpu.kernels import CpuKernels
from hetsched.devices.slots import SlotMap, Views, fresh_pages
from hetsched.errors import InternalError
from hetsched.workload import Kernel

_Span = tuple[float, float]


class Pace(Protocol):
    """The clock of a core."""

    def begin(self, job: DeviceJob | None) -> None:
        """A job starts; None: the last one is over and to be forgotten."""

    def now(self) -> float:
        """Seconds on this clock."""

    def busy(self) -> float | None:
        """Seconds that this thread has had a processor for, ever; None: of no meaning here."""

    def computed(self, chunk: Chunk, start: float) -> tuple[float, int]:
        """When the computation that began at `start` and is done by now ends; how often late."""


class Wall:
    """A computation lasts as long as it lasts."""

    def begin(self, job: DeviceJob | None) -> None:
        pass

    def now(self) -> float:
        return time.monotonic()

    def busy(self) -> float | None:
        return time.thread_time()

    def computed(self, chunk: Chunk, start: float) -> tuple[float, int]:
        return time.monotonic(), 0


class Together(Wall):
    """The threads of a team: how long they all had a core isn't what one of them can say."""

    def busy(self) -> float | None:
        return None


class CpuJob:
    """A job as one core runs it: kernel, resident arrays, the arrays of each chunk."""

    def __init__(self, job: DeviceJob, kernel: Kernel, in_place: Mapping[str, str]) -> None:
        self.job = job
        self.kernel = kernel
        self.residents = {
            name: resident(array)
            for name, array in job.inputs.items()
            if array.spec.role == "resident"
        }
        self.inputs = {n: a for n, a in job.inputs.items() if n not in self.residents}
        self.outputs = dict(job.outputs)
        split = [*self.inputs.values(), *self.outputs.values()]
        self.direct = all(array.direct(0, 1) is not None for array in split)
        # A slot's copies need a buffer each: what is shared with the host must not be overwritten.
        arrays = list({array.spec.name: array.spec for array in split}.values())
        self.map = SlotMap(arrays, in_place, job.demand)

    def direct_views(self, chunk: Chunk) -> tuple[Views, Views]:
        return (
            {name: _view(array, chunk) for name, array in self.inputs.items()},
            {name: _view(array, chunk) for name, array in self.outputs.items()},
        )


class CpuDevice:
    """A core, or a team of them.

    Its operations run on the thread that calls them, which should be pinned to it.
    """

    def __init__(self, info: DeviceInfo, pace: Pace | None = None) -> None:
        self._info = info
        self._pace = pace or (Together() if info.members else Wall())
        self._kernels = CpuKernels()
        self._memory = np.empty(0, np.uint8)
        self._job: CpuJob | None = None
        self._views: tuple[Views, Views] = ({}, {})
        self._copied_in: _Span | None = None
        self._times: dict[int, ChunkTimes] = {}

    def describe(self) -> DeviceInfo:
        return self._info

    def prepare(self, job: DeviceJob | None) -> None:
        self._job = None
        self._views = ({}, {})
        self._times.clear()
        self._pace.begin(job)
        if job is None:
            return
        kernel, in_place = self._kernels.get(job)
        prepared = CpuJob(job, kernel, in_place)
        if not prepared.direct:
            slots = max(1, job.slots)
            self._memory = warm(self._memory, slots * prepared.map.nbytes(job.chunk))
        self._job = prepared

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        job = self._prepared()
        self._copied_in = None
        if job.direct:
            self._views = job.direct_views(chunk)
            return
        start = self._pace.now()
        self._views = job.map.views(self._memory, slot, chunk.count)
        for name, array in job.inputs.items():
            array.read(chunk.first, chunk.count, self._views[0][name])
        self._copied_in = (start, self._pace.now())

    def compute(self, chunk: Chunk, slot: Slot) -> None:
        job = self._prepared()
        inputs, outputs = self._views
        start, before = self._pace.now(), self._pace.busy()
        job.kernel({**inputs, **job.residents}, outputs)
        after = self._pace.busy()
        end, late = self._pace.computed(chunk, start)
        self._times[chunk.id] = ChunkTimes(
            copy_in=self._copied_in,
            compute=(start, end),
            late=late,
            busy=None if before is None or after is None else after - before,
        )

    def copy_out(self, chunk: Chunk, slot: Slot) -> None:
        job = self._prepared()
        _, outputs = self._views
        self._views = ({}, {})
        if job.direct:
            return
        start = self._pace.now()
        for name, array in job.outputs.items():
            array.write(chunk.first, chunk.count, outputs[name])
        span = (start, self._pace.now())
        self._times[chunk.id] = msgspec.structs.replace(self._times[chunk.id], copy_out=span)

    def wait(self, chunk: Chunk) -> ChunkTimes:
        return self._times.pop(chunk.id)

    def _prepared(self) -> CpuJob:
        if self._job is None:
            raise InternalError(f"{self._info.name}: a chunk before any job")
        return self._job


def open_device(info: DeviceInfo, config: DeviceConfig) -> CpuDevice:
    """The core or team `info`."""
    return CpuDevice(info)


def resident(array: HostArray) -> np.ndarray:
    """All of a resident array as kernels want it; a copy only where there must be one."""
    found = array.direct(0, 0)
    if found is None:
        found = np.empty(array.spec.unit_shape, array.spec.dtype)
        array.read(0, 0, found)
    return found


def warm(memory: np.ndarray, nbytes: int) -> np.ndarray:
    """`memory` if it has `nbytes`, else fresh page-aligned bytes; first touched here, untimed."""
    if memory.size >= nbytes:
        return memory
    fresh = fresh_pages(nbytes)
    fresh.fill(0)
    return fresh


def _view(array: HostArray, chunk: Chunk) -> np.ndarray:
    view = array.direct(chunk.first, chunk.count)
    if view is None:
        raise InternalError(f"{array.spec.name}: no direct view of units {chunk.first}..")
    return view
