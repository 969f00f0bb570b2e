"""Prepares a job on an accelerator: memory, kernel, resident arrays, routes, warm-up. Untimed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from hetsched.bounded_cache import BoundedCache
from hetsched.device import Chunk, Slot
from hetsched.devices.accelerator.pinned import Pinned, Pins, Staging, mapping_of
from hetsched.devices.accelerator.runtime import Block, Copy, Fault, Queue, Runtime
from hetsched.devices.base import DeviceJob, DeviceOutOfMemory, HostArray
from hetsched.devices.kernels import find_variant, kernel_key, make_kernel, range_of
from hetsched.devices.slot_layout import Buffer, SlotLayout, slot_layout
from hetsched.errors import DataError, InternalError, UsageError
from hetsched.plans.slots import aligned
from hetsched.workload import Arrays, Kernel, KernelContext, Variant
from hetsched.workload.protocol import array_bytes

STAGING_FRACTION = 4
"""This part of the quota of pinned memory is left to staging buffers: slots, of which a few take
less. Arbitrary."""
MAX_KERNELS = 8
"""Kernels, with their plans, that are cached for similar jobs. Arbitrary."""


class JobPreparer:
    """Makes a `LoadedJob`, and keeps memory and kernels for the next. The device must be idle."""

    def __init__(
        self, runtime: Runtime, pins: Pins, queues: tuple[Queue, Queue], needs_warm_up: bool
    ) -> None:
        self._runtime = runtime
        self._pins = pins
        self._staging = Staging(pins)
        self._copy_queue, self._compute_queue = queues
        self._needs_warm_up = needs_warm_up
        self._kernels: BoundedCache[Hashable, tuple[Kernel, set[int]]]
        """Kernels, and the sizes of the chunks that each has computed."""
        self._kernels = BoundedCache(max_entries=MAX_KERNELS)
        self._block: Block | None = None
        self._area = SharedWorkArea(runtime, 0)

    def prepare(self, job: DeviceJob) -> LoadedJob:
        """Do everything that isn't timed; if memory runs out, free that of earlier jobs."""
        try:
            return self._prepare(job)
        except Exception as error:
            if self._runtime.classify(error) is not Fault.MEMORY:
                raise
        # Not in the handler, whose traceback refers to arrays of the failed attempt. So do the
        # tracebacks of its causes, which are in reference cycles.
        gc.collect()
        self._free_blocks()
        return self._prepare(job)

    @property
    def device_bytes(self) -> int:
        return self._area.nbytes + (self._block.nbytes if self._block else 0)

    @property
    def keeps_memory(self) -> bool:
        return self.device_bytes > 0 or self._staging.nbytes > 0

    def free(self) -> None:
        """Free what is kept, also by libraries for temporaries; `Pins.sweep` unpins it."""
        self._free_blocks()
        self._staging.clear()

    def _free_blocks(self) -> None:
        self._kernels.clear()
        self._block = None
        self._area = SharedWorkArea(self._runtime, 0)
        self._runtime.trim()

    def _prepare(self, job: DeviceJob) -> LoadedJob:
        variant = find_variant(job, self._runtime.kernels)
        specs = job.workload.arrays(job.params)
        in_place = job.workload.in_place.get(self._runtime.kernels, {})
        layout = slot_layout(specs, in_place, job.demand)
        residents, slots_start = {}, 0
        for name, host in job.inputs.items():
            if host.spec.role == "resident":
                residents[name] = slots_start
                slots_start += aligned(array_bytes(host.spec))
        slots_bytes = job.memory or max(1, job.slots) * layout.nbytes(job.chunk)
        self._make_room(job, slots_start + aligned(slots_bytes))

        def make() -> tuple[Kernel, set[int]]:
            made = self._make_kernel(job, variant)
            # Libraries initialise plans in the default queue, which ours don't wait for.
            self._runtime.synchronize()
            return made, set()

        key = kernel_key(job, variant, job.chunk)
        kernel, warm_sizes = self._kernels.get_or_compute(key, make)
        assert self._block is not None, "there is room"
        prepared = LoadedJob(
            job, self._compute_queue, self._block, slots_start, slots_bytes, layout, kernel,
            self._staging, self._runtime.host_seconds,
        )  # fmt: skip
        for name, offset in residents.items():  # they may be pageable, as nothing is timed here
            spec, whole = job.inputs[name].spec, job.inputs[name].direct(0, 0)
            assert whole is not None, "it was read when the job came"
            copy = Copy(self._block, offset, np.ascontiguousarray(whole))
            self._copy_queue.copy_in(self._pins.split([copy]), 0)
            self._runtime.synchronize()
            array = self._compute_queue.array(self._block, offset, spec.unit_shape, spec.dtype)
            prepared.residents[name] = array
        self._set_routes(prepared)
        if self._needs_warm_up:
            self._warm_up(prepared, warm_sizes)
        return prepared

    def _make_room(self, job: DeviceJob, nbytes: int) -> None:
        """Have a work area and a block that are large enough.

        What is too small is freed first, as both may not fit. So is an area that the job doesn't
        need, as that isn't in its budget, with the kernels that refer to it.
        """
        work_bytes = job.demand.workspace(job.chunk) if job.demand.work == "max" else 0
        if self._area.nbytes < work_bytes or (self._area.nbytes and not work_bytes):
            self._kernels.clear()
            self._area = SharedWorkArea(self._runtime, 0)
            self._area = SharedWorkArea(self._runtime, work_bytes)
        if self._block is None or self._block.nbytes < nbytes:
            self._block = None
            self._block = self._runtime.allocate(nbytes)

    def _make_kernel(self, job: DeviceJob, variant: Variant) -> Kernel:
        """Call `make_kernel`; out of memory and a lost context aren't blamed on the variant."""
        runtime = self._runtime
        context = KernelContext(
            runtime.kernels, job.threads, job.cache, runtime.xp, self._area, job.say
        )
        try:
            return make_kernel(variant, job, context)
        except UsageError as error:
            cause = error.__cause__
            fault = Fault.USAGE if cause is None else runtime.classify(cause)
            if cause is None or fault is Fault.USAGE:
                raise
            if fault is not Fault.PLAN:
                raise cause from None
            runtime.synchronize()  # raises if the context is lost
            message = f"no plan could be made, memory may be low: {cause}"
            raise DeviceOutOfMemory(message) from cause

    def _set_routes(self, prepared: LoadedJob) -> None:
        """Decide for each array whether it is copied directly; allocate staging buffers."""
        job, layout, staged_count = prepared.job, prepared.layout, 0
        for hosts, buffers, routes in (
            (job.inputs, layout.inputs, prepared.input_routes),
            (job.outputs, layout.outputs, prepared.output_routes),
        ):
            for name, buffer in buffers.items():
                pinned = self._pin(job, hosts[name])
                is_direct = pinned is not None and pinned.is_whole
                if not self._pins.quota:  # staging buffers would be no better
                    is_direct = _direct_view(hosts[name]) is not None
                staged = None if is_direct else staged_count
                routes.append(Route(hosts[name], buffer, pinned, staged))
                staged_count += not is_direct
        for route in prepared.input_routes + prepared.output_routes:
            for index in range(job.slots if route.staged is not None else 0):
                prepared.staging_buffer(Slot(index, 0), route, job.chunk)

    def _pin(self, job: DeviceJob, host: HostArray) -> Pinned | None:
        """Pin the memory of an array for direct copies, or part of it; None: stage all of it."""
        view = _direct_view(host)
        if view is None:
            return None
        pinned = self._pins.cover(view, self._pins.quota // STAGING_FRACTION)
        is_partial = pinned is None or not pinned.is_whole
        if self._pins.quota and mapping_of(view) is not None and is_partial:
            what = "all of " if pinned else ""
            reason = self._pins.refused
            job.say(f"can't pin {what}{host.spec.name} ({reason}): its copies take longer")
        return pinned

    def _warm_up(self, prepared: LoadedJob, warm_sizes: set[int]) -> None:
        """Run the kernel on zeros, once for each size that is new to it: it may make plans."""
        sizes = {prepared.job.chunk, *prepared.job.chunk_sizes} - warm_sizes
        if not sizes or range_of(prepared.kernel, 0, 1):  # it isn't a pure function
            return
        queue, done = self._compute_queue, self._runtime.event()
        try:
            for units in sorted(sizes, reverse=True):
                inputs, outputs = prepared.arrays(units, Slot(0, 0))
                queue.clear(prepared.block, prepared.slots_start, prepared.layout.nbytes(units))
                queue.launch(partial(prepared.kernel, inputs, outputs), 0)
            queue.record(done)
            done.wait()
        except DataError:  # about zeros, which the job may not have
            self._runtime.synchronize()
        warm_sizes |= sizes


def _direct_view(host: HostArray) -> np.ndarray | None:
    """Return a view of the first unit if chunks can be copied from or to the host's memory."""
    view = host.direct(0, 1)
    return view if view is not None and view.flags.c_contiguous else None


# ---- a prepared job


@dataclass(frozen=True)
class Route:
    """How one split array is copied."""

    host: HostArray
    buffer: Buffer
    pinned: Pinned | None
    staged: int | None
    """Number of its staging buffer in each slot; None: it has none, as all of its chunks are
    copied from or to the host's memory."""

    def direct(self, chunk: Chunk) -> np.ndarray | None:
        """Return the host memory that a chunk is copied from or to; None: it is staged."""
        if self.pinned is None and self.staged is not None:
            return None
        view = self.host.direct(chunk.first, chunk.count)
        assert view is not None, "any unit can be viewed, or none"
        is_direct = self.staged is None or (self.pinned and self.pinned.covers(view))
        return view if is_direct else None


@dataclass
class LoadedJob:
    """The result of `prepare`, used by the chunks of a job.

    In the block are resident arrays, then the slots.
    """

    job: DeviceJob
    queue: Queue
    block: Block
    slots_start: int
    slots_bytes: int
    layout: SlotLayout
    kernel: Kernel
    staging: Staging
    host_seconds: Callable[[], float | None]
    residents: dict[str, Any] = field(default_factory=dict)
    input_routes: list[Route] = field(default_factory=list)
    output_routes: list[Route] = field(default_factory=list)
    _arrays: dict[tuple[int, int], tuple[Arrays, Arrays]] = field(default_factory=dict)

    def arrays(self, units: int, slot: Slot) -> tuple[Arrays, Arrays]:
        key = (slot.offset, units)
        if key not in self._arrays:
            self._check(units, slot)
            inputs = self._views(self.layout.inputs, units, slot)
            outputs = self._views(self.layout.outputs, units, slot)
            self._arrays[key] = (inputs | self.residents, outputs)
        return self._arrays[key]

    def _views(self, buffers: Mapping[str, Buffer], units: int, slot: Slot) -> dict[str, Any]:
        def view(buffer: Buffer) -> Any:
            shape, dtype = (units, *buffer.spec.unit_shape), buffer.spec.dtype
            return self.queue.array(self.block, self.offset(buffer, units, slot), shape, dtype)

        return {name: view(buffer) for name, buffer in buffers.items()}

    def offset(self, buffer: Buffer, units: int, slot: Slot) -> int:
        return self.slots_start + slot.offset + self.layout.offsets(units)[buffer.index]

    def staging_buffer(self, slot: Slot, route: Route, units: int) -> np.ndarray:
        key = slot.index, route.staged
        return self.staging.array(key, route.host.spec, self.job.chunk)[:units]

    def _check(self, units: int, slot: Slot) -> None:
        """Raise InternalError if the slot ends past the job's memory, which would be corrupted."""
        end = slot.offset + self.layout.nbytes(units)
        if slot.offset < 0 or end > self.slots_bytes or units > self.job.chunk:
            raise InternalError(
                f"slot {slot.index} at {slot.offset} with {units} units ends at {end} of"
                f" {self.slots_bytes} bytes; a chunk has at most {self.job.chunk} units"
            )


# ---- kept between jobs


class SharedWorkArea:
    """`KernelContext.allocate`: one area for all kernels, which run one after the other.

    Plans that a workload keeps between jobs refer to the area that they were made with, so it is a
    separate block, replaced only when a larger one is needed.
    """

    def __init__(self, runtime: Runtime, nbytes: int) -> None:
        self._runtime = runtime
        self._block = runtime.allocate(nbytes) if nbytes else None

    @property
    def nbytes(self) -> int:
        return self._block.nbytes if self._block else 0

    def __call__(self, nbytes: int) -> Any:
        """Return the area, or separate memory if a library needs more than was declared."""
        block = self._block
        if block is None or nbytes > block.nbytes:
            block = self._runtime.allocate(nbytes)
        return block.pointer()
