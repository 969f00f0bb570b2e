"""A CPU core or a team of cores: no separate memory, no copy engines, blocking operations.

Where kernels can use all arrays of a job unconverted, they run directly on the arena. Otherwise
(files, other dtypes) a chunk passes through a warm, page-aligned slot, and has copy phases. A
CoreClock defines how long a computation lasts, so an emulated core is the same device.
"""

from __future__ import annotations

import msgspec
import numpy as np

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.devices.base import DeviceJob
from hetsched.devices.cpu.clocks import CoreClock, TeamClock, WallClock
from hetsched.devices.cpu.cpu_job import CpuJob
from hetsched.devices.cpu.kernels import CpuKernels
from hetsched.devices.cpu.stages import HostStages
from hetsched.devices.host_slots import Views, slot_views, touched_pages
from hetsched.devices.iterating import IterativeJob, StageExecutor
from hetsched.errors import InternalError
from hetsched.workload.kernel_arrays import KernelArrays


def open_device(info: DeviceInfo, config: DeviceConfig) -> CpuDevice:
    """Open the core or team `info`."""
    return CpuDevice(info)


class CpuDevice:
    """A core or a team of cores.

    Its operations run on the calling thread, which should be pinned to the core.
    """

    def __init__(
        self,
        info: DeviceInfo,
        clock: CoreClock | None = None,
        kernels: CpuKernels | None = None,
    ) -> None:
        self._info = info
        self._clock = clock or (TeamClock() if info.members else WallClock())
        self._kernels = kernels or CpuKernels()
        self._memory = np.empty(0, np.uint8)
        self._job: CpuJob | None = None
        self._views: tuple[Views, Views] = ({}, {})
        self._copy_in_span: tuple[float, float] | None = None
        self._times: dict[int, ChunkTimes] = {}

    def describe(self) -> DeviceInfo:
        return self._info

    def beside(self) -> CpuDevice:
        """Return a device for a second job, as `ShareableDevice.beside`."""
        return CpuDevice(self._info, self._clock.beside(), self._kernels)

    def prepare(self, job: DeviceJob | None) -> None:
        self._job = None
        self._views = ({}, {})
        self._times.clear()
        self._clock.begin(job)
        if job is None:
            return
        cpu_job = CpuJob(job, self._kernels)
        if not cpu_job.is_direct:
            slots = max(1, job.slots)
            self._memory = touched_pages(self._memory, slots * cpu_job.slot_bytes)
        self._job = cpu_job

    def prepare_iterations(self, job: IterativeJob) -> StageExecutor:
        """Make the kernels of all stages, as `IteratingDevice.prepare_iterations`."""
        self.prepare(None)
        return HostStages(job, self._clock.stage_clock(job))

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        job = self._current_job()
        self._copy_in_span = None
        if job.is_direct:
            self._views = job.direct_views(chunk)
            return
        layout = job.prepared(chunk).layout
        end = slot.offset + layout.nbytes(chunk.count)
        self._memory = touched_pages(self._memory, end)  # usually large enough: see `prepare`
        start = self._clock.now()
        self._views = slot_views(layout, self._memory, slot, chunk.count)
        for name, array in job.inputs.items():
            array.read(chunk.first, chunk.count, self._views[0][name])
        self._copy_in_span = (start, self._clock.now())

    def compute(self, chunk: Chunk, slot: Slot) -> None:
        job = self._current_job()
        failures: list[tuple[str, Exception]] = []
        while True:
            try:
                self._run_kernel(job, chunk)
                break
            except Exception as error:
                failed = job.drop_failed(chunk, error)
                if failed is None:
                    raise
                failures.append((failed.variant, error))
                self.copy_in(chunk, slot)  # into the layout of the next kernel
        # Only now: if none succeeds, the data may be the reason.
        for variant, failure in failures:
            job.job.reject(variant, failure)

    def _run_kernel(self, job: CpuJob, chunk: Chunk) -> None:
        inputs, outputs = self._views
        start, busy_before = self._clock.now(), self._clock.busy_seconds()
        kernel = job.prepared(chunk).kernel
        kernel(KernelArrays({**inputs, **job.residents}), KernelArrays(outputs))
        busy_after = self._clock.busy_seconds()
        end, late = self._clock.end_of(chunk, start)
        self._times[chunk.id] = ChunkTimes(
            copy_in=self._copy_in_span,
            compute=(start, end),
            late=late,
            busy=None if busy_before is None or busy_after is None else busy_after - busy_before,
            kernel=job.number(chunk),
            units_per_call=getattr(kernel, "units_per_call", 0),
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
