"""A CPU core or a team of cores: no separate memory, no copy engines, blocking operations.

Where kernels can use all arrays of a job unconverted, they run directly on the arena. Otherwise
(files, other dtypes) a chunk passes through warm, page-aligned buffers, and has copy phases. A
CoreClock defines how long a computation lasts, so an emulated core is the same device.

In a race of variants a job has several kernels, one for each variant. One that can't be made, or
that fails on a chunk, is replaced by the first that works, so that the job goes on without it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from hetsched.bounded_cache import BoundedCache
from hetsched.config import DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot, kernel_chunk
from hetsched.devices.base import (
    DeviceFault,
    DeviceJob,
    DeviceOutOfMemory,
    HostArray,
    IterativeJob,
    StageExecutor,
    StageSeconds,
)
from hetsched.devices.kernels import (
    StageTimes,
    find_variant,
    kernel_key,
    make_kernel,
    range_of,
)
from hetsched.devices.slot_layout import HostBuffers
from hetsched.errors import InternalError, UsageError
from hetsched.iterations.home import Part, compute_stage
from hetsched.workload import Arrays, Kernel, KernelContext, Rows, Stage, Values
from hetsched.workload.iterative import StageCall, StageKernel
from hetsched.workload.protocol import KernelArrays

Views = dict[str, np.ndarray]
MAX_KERNELS = 16
"""Largest number of cached kernels, which may hold plans and work areas. Arbitrary."""


class CpuKernels:
    """A core's most recent kernels, kept for the next job. Belongs to one thread.

    They are made for slightly larger chunks (`device.kernel_chunk`): a new plan finds them, too.
    `adapted` returns a kernel for NumPy's arrays, given one of `kind`; `warm_up` is called with a
    new kernel of chunks and its job, before that is timed.
    """

    def __init__(
        self,
        kind: str = "cpu",
        xp: Any = np,
        adapted: Callable[[Any], Any] = lambda kernel: kernel,
        warm_up: Callable[[Kernel, DeviceJob], None] = lambda kernel, job: None,
    ) -> None:
        self._kind, self._xp, self._adapted, self._warm_up = kind, xp, adapted, warm_up
        self._kernels: BoundedCache[Hashable, Kernel] = BoundedCache(max_entries=MAX_KERNELS)
        self.stage_times = StageTimes() if kind != "cpu" else None

    def get(self, job: DeviceJob, name: str) -> Kernel:
        """Return the kernel of a variant. Raises UsageError."""
        chunk = kernel_chunk(job.chunk)
        variant = find_variant(job, self._kind, name)

        def make() -> Kernel:
            made = make_kernel(variant, replace(job, chunk=chunk), self._context(job))
            kernel: Kernel = self._adapted(made)
            self._warm_up(kernel, job)
            return kernel

        return self._kernels.get_or_compute(kernel_key(job, variant, chunk), make)

    def of_stages(self, job: IterativeJob) -> Mapping[str, StageKernel]:
        """Return new kernels by stage, which may keep what they have derived from the data."""
        variant = find_variant(job.job, self._kind)
        made: Any = make_kernel(variant, job.job, self._context(job.job))
        if self.stage_times:
            self.stage_times.begin(job, variant)
        return {name: self._adapted_stage(kernel) for name, kernel in made.items()}

    def _adapted_stage(self, kernel: StageKernel) -> StageKernel:
        def compute(inputs: Arrays, outputs: Arrays, call: StageCall) -> None:
            kernel(call._replace(inputs=inputs, outputs=outputs))

        adapted = self._adapted(compute)
        return lambda call: adapted(call.inputs, call.outputs, call)

    def _context(self, job: DeviceJob) -> KernelContext:
        return KernelContext(self._kind, job.threads, job.cache, self._xp, None, job.say)


_OTHER_CAUSES = (MemoryError, DeviceFault, DeviceOutOfMemory)
"""Errors that another variant wouldn't avoid."""


class CpuJob:
    """A job on one core. Raises UsageError if no variant could be made."""

    def __init__(self, job: DeviceJob, kernels: CpuKernels) -> None:
        self.job = job
        self.residents: dict[str, Any] = {
            name: array.direct(0, 0)
            for name, array in job.inputs.items()
            if array.spec.role == "resident"
        }
        self.inputs = {n: a for n, a in job.inputs.items() if n not in self.residents}
        self.outputs = dict(job.outputs)
        split = [*self.inputs.values(), *self.outputs.values()]
        self.is_direct = all(array.direct(0, 1) is not None for array in split)
        self._variants = (job.variant, *job.rivals)
        self._kernels: dict[int, Kernel] = {}
        failures: dict[str, UsageError] = {}
        for number, variant in enumerate(self._variants):
            try:
                if variant:
                    self._kernels[number] = kernels.get(job, variant)
            except UsageError as error:
                failures[variant] = error
        if not self._kernels:
            raise next(iter(failures.values()))
        for variant, failure in failures.items():
            job.reject(variant, failure)

    def number(self, chunk: Chunk) -> int:
        """Return the kernel that computes `chunk`: its own, or the first that works."""
        return chunk.kernel if chunk.kernel in self._kernels else next(iter(self._kernels))

    def kernel(self, chunk: Chunk) -> Kernel:
        return self._kernels[self.number(chunk)]

    def drop_failed(self, chunk: Chunk, error: Exception) -> str:
        """Drop the kernel that failed on `chunk`, and return its variant; "": no other may
        succeed."""
        if len(self._kernels) == 1 or isinstance(error, _OTHER_CAUSES):
            return ""
        number = self.number(chunk)
        del self._kernels[number]
        return self._variants[number]

    def views(self, chunk: Chunk, buffers: HostBuffers) -> tuple[Views, Views]:
        """Return the chunk's part of the inputs and outputs, in the arena or in buffers."""
        numbers = itertools.count()

        def view(array: HostArray) -> np.ndarray:
            if not self.is_direct:
                return buffers.array(next(numbers), array.spec, chunk.count)
            direct = array.direct(chunk.first, chunk.count)
            assert direct is not None, "any unit can be viewed, or none"
            return direct

        inputs = {name: view(array) for name, array in self.inputs.items()}
        return inputs, {name: view(array) for name, array in self.outputs.items()}


class CoreClock:
    """How long what a core computes lasts: here until its call returns."""

    def __init__(self, has_own_core: bool = True) -> None:
        self.has_own_core = has_own_core
        """Between computations the thread may look for other devices before it sleeps."""

    def begin(self, job: DeviceJob | None, parts: int = 1) -> None:
        """A job starts, each unit of which is computed in equal parts.

        None: the previous one has ended, so drop every reference to it.
        """

    def now(self) -> float:
        return time.monotonic()

    def end_of(self, units: int, start: float) -> tuple[float, int]:
        """Return the end of the computation begun at `start` and just completed; 1 if late."""
        return time.monotonic(), 0

    def beside(self) -> CoreClock:
        return CoreClock(self.has_own_core)


def open_device(info: DeviceInfo, config: DeviceConfig) -> CpuDevice:
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
        self._clock = clock or CoreClock()
        self._kernels = kernels or CpuKernels()
        self._buffers = HostBuffers()
        self._job: CpuJob | None = None
        self._views: tuple[Views, Views] = ({}, {})
        self._copy_in_span: tuple[float, float] | None = None
        self._times: dict[int, ChunkTimes] = {}

    def describe(self) -> DeviceInfo:
        return self._info

    def beside(self) -> CpuDevice:
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
            cpu_job.views(Chunk(0, 0, job.chunk), self._buffers)
        self._job = cpu_job

    def prepare_iterations(self, job: IterativeJob) -> StageExecutor:
        self.prepare(None)
        kernels = self._kernels.of_stages(job)
        return HostStages(job, kernels, self._clock, self._kernels.stage_times)

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        job = self._current_job()
        self._copy_in_span = None
        self._views = job.views(chunk, self._buffers)
        if job.is_direct:
            return
        start = self._clock.now()
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
                if not failed:
                    raise
                failures.append((failed, error))
                self.copy_in(chunk, slot)  # the kernel may have changed its inputs
        # Only now: if none succeeds, the data may be the reason.
        for variant, failure in failures:
            job.job.reject(variant, failure)

    def _run_kernel(self, job: CpuJob, chunk: Chunk) -> None:
        inputs, outputs = self._views
        start = self._clock.now()
        kernel = job.kernel(chunk)
        place = range_of(kernel, chunk.first, chunk.count)
        kernel(KernelArrays({**inputs, **job.residents}), KernelArrays(outputs), *place)
        end, late = self._clock.end_of(chunk.count, start)
        self._times[chunk.id] = ChunkTimes(
            copy_in=self._copy_in_span,
            compute=(start, end),
            late=late,
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


# ---- iterative jobs


class HostStages:
    """An executor that runs kernels on the home arrays, with one thread or the job's threads.

    The stages of an iteration have equal parts of a modelled time.
    """

    def __init__(
        self,
        job: IterativeJob,
        kernels: Mapping[str, StageKernel],
        clock: CoreClock,
        times: StageTimes | None,
    ) -> None:
        self._home = job.home
        self._clock = clock
        self.has_own_core = clock.has_own_core
        clock.begin(job.job, max(1, len(job.workload.iteration(job.job.params))))
        self._kernels, self._times = kernels, times
        self._rows = Rows(0, 0, job.load)
        self._views: dict[tuple[Part, str, int], tuple[Arrays, Arrays, list[tuple[Any, Any]]]] = {}
        """Inputs, outputs, and copies to the border, of each stage."""

    has_own_memory = False

    def begin(self) -> None:
        pass

    def defer(self) -> None:
        raise InternalError("rows are computed in the home arrays")

    def adopt(self, rows: Rows, iteration: int) -> float:
        self._rows = rows
        self._views.clear()
        return 0.0

    def compute(
        self,
        part: Part,
        stage: Stage,
        iteration: int,
        values: Values,
        partials: Mapping[str, Any],
    ) -> StageSeconds:
        rows, key = self._rows, (part, stage.name, iteration % 2)
        if key not in self._views:
            given, written = self._home.views(stage, part, iteration, rows)
            borders = list(self._home.border_copies(stage, part, iteration, rows))
            self._views[key] = KernelArrays(given), KernelArrays(written), borders
        inputs, outputs, borders = self._views[key]
        call = StageCall(rows, inputs, outputs, values, partials)
        while True:
            start = self._clock.now()
            compute_stage(self._kernels[stage.name], call)
            for ghost, source in borders:
                ghost[...] = source
            end, _ = self._clock.end_of(rows.count, start)
            times = self._times
            if not (times and times.is_to_repeat(part, stage, rows.count, end - start)):
                return StageSeconds(end - start)

    def write_back(self, iteration: int) -> float:
        return 0.0
