"""Prepares a job on an accelerator: memory, kernel, resident arrays, routes, warm-up. Untimed."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np

from hetsched.device import Chunk, Slot
from hetsched.devices.accelerator.pinned import Pinned, Pins, Staging, mapping_of
from hetsched.devices.accelerator.runtime import Block, Copy, Fault, Queue, Runtime
from hetsched.devices.base import DeviceJob, DeviceOutOfMemory, HostArray
from hetsched.devices.kernels import find_variant, make_kernel, range_of
from hetsched.devices.slot_layout import Buffer, SlotLayout, slot_layout, unit_bytes
from hetsched.errors import DataError, InternalError, UsageError
from hetsched.plans.slots import aligned
from hetsched.workload import Kernel, KernelContext, Variant

ALIGNMENT = 256
"""Of arrays in device memory, bytes: the widest loads of cuFFT and cuBLAS need less."""
MAX_KERNELS = 8
"""Kernels, with their plans, that are cached for similar jobs. Arbitrary."""


class JobPreparer:
    """Makes a `LoadedJob`. The device must be idle.

    Parameters
    ----------
    queues : (Queue, Queue)
        For copies in, and for kernels.
    needs_warm_up : bool
        See `DeviceFacts`.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        pins: Pins,
        staging: Staging,
        queues: tuple[Queue, Queue],
        needs_warm_up: bool,
    ) -> None:
        self._memory = memory
        self._pins = pins
        self._staging = staging
        self._copy_queue, self._compute_queue = queues
        self._needs_warm_up = needs_warm_up
        self.host_seconds = memory.runtime.host_seconds

    def prepare(self, job: DeviceJob) -> LoadedJob:
        """Do everything for `job` that isn't timed.

        If memory runs out, that of earlier jobs is freed first.
        """
        try:
            return self._prepare(job)
        except Exception as error:
            if self._memory.runtime.classify(error) is not Fault.MEMORY:
                raise
        # Not in the handler, whose traceback refers to arrays of the failed attempt. So do the
        # tracebacks of its causes, which are in reference cycles.
        gc.collect()
        self._memory.free()
        return self._prepare(job)

    def _prepare(self, job: DeviceJob) -> LoadedJob:
        variant = find_variant(job, self._memory.runtime.kernels)
        specs = job.workload.arrays(job.params)
        layout = slot_layout(specs, variant.in_place, job.demand, ALIGNMENT)
        residents, slots_start = {}, 0
        for name, host in job.inputs.items():
            if host.spec.role == "resident":
                residents[name] = slots_start
                slots_start += aligned(unit_bytes(host.spec))
        work_bytes = job.demand.workspace(job.chunk) if job.demand.work == "max" else 0
        slots_bytes = job.memory or max(1, job.slots) * layout.nbytes(job.chunk)
        area = self._memory.work_area(work_bytes)
        block = self._memory.block(slots_start + aligned(slots_bytes))
        kernel, warm_sizes = self._kernel(job, variant, area)
        prepared = LoadedJob(
            job, self._compute_queue, block, slots_start, slots_bytes, layout, kernel
        )
        for name, offset in residents.items():
            prepared.residents[name] = self._copy_resident(block, offset, job.inputs[name])
        self._set_routes(prepared)
        if self._needs_warm_up:
            self._warm_up(prepared, warm_sizes)
        return prepared

    def staging_buffer(
        self, prepared: LoadedJob, slot: Slot, route: Route, units: int
    ) -> np.ndarray:
        """Return `units` of the pinned buffer that a staged array passes through in `slot`."""
        number, spec = route.staged or 0, route.host.spec
        nbytes = route.buffer.nbytes(prepared.job.chunk)
        memory = self._staging.buffer((slot.index, number), nbytes, prepared.mappings)
        raw = memory[: route.buffer.nbytes(units)]
        return raw.view(spec.dtype).reshape(units, *spec.unit_shape)

    def _kernel(
        self, job: DeviceJob, variant: Variant, area: SharedWorkArea
    ) -> tuple[Kernel, set[int]]:
        """Return the kernel, and the sizes of chunks that it has computed."""
        params = msgspec.json.encode(job.params)
        left = variant.tuning_left(job.params, job.threads, job.cache)  # then it is made anew
        key = (type(job.workload), params, variant.name, job.chunk, job.threads, left)
        kernels = self._memory.kernels
        if key not in kernels:
            if len(kernels) >= MAX_KERNELS:
                kernels.pop(next(iter(kernels)))
            kernels[key] = self._make_kernel(job, variant, area), set()
            # Libraries initialise plans in the default queue, which ours don't wait for.
            self._memory.runtime.synchronize()
        return kernels[key]

    def _make_kernel(self, job: DeviceJob, variant: Variant, area: SharedWorkArea) -> Kernel:
        """Call `make_kernel`; out of memory and a lost context aren't blamed on the variant."""
        try:
            return make_kernel(variant, job, self._kernel_context(job, area))
        except UsageError as error:
            cause = error.__cause__
            fault = Fault.USAGE if cause is None else self._memory.runtime.classify(cause)
            if cause is None or fault is Fault.USAGE:
                raise
            if fault is not Fault.PLAN:
                raise cause from None
            self._memory.runtime.synchronize()  # raises if the context is lost
            message = f"no plan could be made, memory may be low: {cause}"
            raise DeviceOutOfMemory(message) from cause

    def _kernel_context(self, job: DeviceJob, area: SharedWorkArea) -> KernelContext:
        return KernelContext(
            kind=self._memory.runtime.kernels,
            threads=job.threads,
            cache=job.cache,
            xp=self._memory.runtime.xp,
            allocate=area,
            say=job.say,
        )

    def _copy_resident(self, block: Block, offset: int, host: HostArray) -> Any:
        """Copy a whole resident array in. It may be pageable, as nothing is timed here."""
        spec = host.spec
        values = host.direct(0, 0)
        if values is None or not values.flags.c_contiguous:
            values = np.empty(spec.unit_shape, spec.dtype)
            host.read(0, 0, values)
        copied = self._memory.runtime.event()
        self._copy_queue.copy_in(self._pins.split([Copy(block, offset, values)]), 0)
        self._copy_queue.record(copied)
        copied.wait()
        return self._compute_queue.array(block, offset, spec.unit_shape, spec.dtype)

    def _set_routes(self, prepared: LoadedJob) -> None:
        """Decide for each array whether it is copied directly; allocate staging buffers."""
        job, layout, staged_count = prepared.job, prepared.layout, 0
        spare = self._staging_quota(job, layout)
        for hosts, buffers, routes in (
            (job.inputs, layout.inputs, prepared.input_routes),
            (job.outputs, layout.outputs, prepared.output_routes),
        ):
            for name, buffer in buffers.items():
                pinned = self._pin(job, hosts[name], prepared.mappings, spare)
                is_direct = pinned is not None and pinned.is_whole
                if not self._pins.quota:  # staging buffers would be no better
                    is_direct = _direct_view(hosts[name]) is not None
                staged = None if is_direct else staged_count
                routes.append(Route(hosts[name], buffer, pinned, is_direct, staged))
                staged_count += not is_direct
        for route in prepared.input_routes + prepared.output_routes:
            for index in range(job.slots if route.staged is not None else 0):
                self.staging_buffer(prepared, Slot(index, 0), route, job.chunk)

    def _staging_quota(self, job: DeviceJob, layout: SlotLayout) -> int:
        """Return the bytes of the quota that staging buffers need if not all arrays can be pinned.

        At most half of it: larger buffers wouldn't be faster than those that aren't pinned.
        """
        hosts = [job.inputs[name] for name in layout.inputs]
        hosts += [job.outputs[name] for name in layout.outputs]
        views = [view for host in hosts if (view := _direct_view(host)) is not None]
        mappings = {
            id(mapping): len(mapping)
            for view in views
            if (mapping := mapping_of(view)) is not None
        }
        if sum(mappings.values()) <= self._pins.quota:
            return 0
        chunk_bytes = sum(
            buffer.nbytes(job.chunk)
            for buffer in (*layout.inputs.values(), *layout.outputs.values())
        )
        return min(max(1, job.slots) * chunk_bytes, self._pins.quota // 2)

    def _pin(
        self, job: DeviceJob, host: HostArray, mappings: set[int], spare: int
    ) -> Pinned | None:
        """Pin the memory of an array for direct copies, or part of it; None: stage all of it."""
        view = _direct_view(host)
        if view is None:
            return None
        pinned = self._pins.cover(view, mappings, spare)
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
        queue, done = self._compute_queue, self._memory.runtime.event()
        try:
            for units in sorted(sizes, reverse=True):
                inputs, outputs = prepared.arrays(units, Slot(0, 0))
                queue.clear(prepared.block, prepared.slots_start, prepared.layout.nbytes(units))
                queue.launch(partial(prepared.kernel, inputs, outputs), 0)
            queue.record(done)
            done.wait()
        except DataError:  # about zeros, which the job may not have
            self._memory.runtime.synchronize()
        warm_sizes |= sizes


def _direct_view(host: HostArray) -> np.ndarray | None:
    """Return a view of the first unit if chunks can be copied from or to the host's memory."""
    view = host.direct(0, 1)
    return view if view is not None and view.flags.c_contiguous else None


# ---- a prepared job


@dataclass(frozen=True)
class Route:
    """How one split array is copied.

    Attributes
    ----------
    host : HostArray
    buffer : Buffer
        Its location in a slot.
    pinned : Pinned or None
        The registration of the host's memory; None: there is none.
    is_direct : bool
        All chunks are copied from or to the host's memory.
    staged : int or None
        Its number among the arrays of which some chunks do.
    """

    host: HostArray
    buffer: Buffer
    pinned: Pinned | None
    is_direct: bool
    staged: int | None

    def direct(self, chunk: Chunk) -> np.ndarray | None:
        """Return the host memory that a chunk is copied from or to; None: it is staged."""
        if self.pinned is None and not self.is_direct:
            return None
        view = self.host.direct(chunk.first, chunk.count)
        if view is None:
            raise InternalError("an array that could be copied directly no longer can")
        return view if self.is_direct or (self.pinned and self.pinned.covers(view)) else None


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
    residents: dict[str, Any] = field(default_factory=dict)
    input_routes: list[Route] = field(default_factory=list)
    output_routes: list[Route] = field(default_factory=list)
    mappings: set[int] = field(default_factory=set)
    """Addresses of the pinned mappings that the job uses."""
    _offsets: dict[int, list[int]] = field(default_factory=dict)
    _arrays: dict[tuple[int, int], tuple[dict[str, Any], dict[str, Any]]] = field(
        default_factory=dict
    )

    def arrays(self, units: int, slot: Slot) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the kernel's inputs and outputs for `units` in `slot`. Raises InternalError."""
        key = (slot.offset, units)
        if key not in self._arrays:
            self._check(units, slot)
            inputs = self._views(self.layout.inputs, units, slot)
            outputs = self._views(self.layout.outputs, units, slot)
            self._arrays[key] = (inputs | self.residents, outputs)
        return self._arrays[key]

    def _views(self, buffers: Mapping[str, Buffer], units: int, slot: Slot) -> dict[str, Any]:
        return {
            name: self.queue.array(
                self.block,
                self.offset(buffer, units, slot),
                buffer.shape(units),
                buffer.spec.dtype,
            )
            for name, buffer in buffers.items()
        }

    def offset(self, buffer: Buffer, units: int, slot: Slot) -> int:
        """Return where `units` of an array in `slot` begin in the block, bytes."""
        if units not in self._offsets:
            self._offsets[units] = self.layout.offsets(units)
        return self.slots_start + slot.offset + self._offsets[units][buffer.index]

    def _check(self, units: int, slot: Slot) -> None:
        """Raise InternalError if the slot ends past the job's memory, which would be corrupted."""
        end = slot.offset + self.layout.nbytes(units)
        if slot.offset < 0 or end > self.slots_bytes or units > self.job.chunk:
            raise InternalError(
                f"slot {slot.index} at {slot.offset} with {units} units ends at {end} of"
                f" {self.slots_bytes} bytes; a chunk has at most {self.job.chunk} units"
            )


# ---- memory kept between jobs


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


class DeviceMemory:
    """The device's block, its work area, and the kernels made with that area."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.kernels: dict[tuple[Any, ...], tuple[Kernel, set[int]]] = {}
        """Kernels, and the sizes of chunks that they have computed."""
        self._block: Block | None = None
        self._work_area: SharedWorkArea | None = None

    def block(self, nbytes: int) -> Block:
        """Return a block of at least `nbytes`: the current one, or a new one that replaces it."""
        if self._block is None or self._block.nbytes < nbytes:
            self._block = None  # freed first: both together may not fit
            self._block = self.runtime.allocate(nbytes)
        return self._block

    def work_area(self, nbytes: int) -> SharedWorkArea:
        """Return an area of at least `nbytes`: the current one, or a new one without kernels.

        If the job needs none, the current area is freed, as it isn't in the job's budget.
        """
        area = self._work_area
        is_unneeded = nbytes == 0 and area is not None and area.nbytes > 0
        if area is None or area.nbytes < nbytes or is_unneeded:
            self.kernels.clear()
            self._work_area = area = None
            self._work_area = area = SharedWorkArea(self.runtime, nbytes)
        return area

    def free(self) -> None:
        """Free everything, also what libraries keep for temporaries."""
        self.kernels.clear()
        self._block = None
        self._work_area = None
        self.runtime.trim()

    @property
    def kept(self) -> int:
        """Bytes of the block and the work area."""
        area = self._work_area.nbytes if self._work_area else 0
        return area + (self._block.nbytes if self._block else 0)
