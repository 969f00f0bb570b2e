"""Prepares a job on a CUDA device: memory, kernel, resident arrays, routes, warm-up. Untimed."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import msgspec
import numpy as np

from hetsched.device import Slot
from hetsched.devices.base import DeviceFault, DeviceJob, DeviceOutOfMemory, HostArray
from hetsched.devices.cuda.faults import Fault, classify, is_internal_plan_error
from hetsched.devices.cuda.job import CudaJob, Route, copy_to_device
from hetsched.devices.cuda.memory.device_memory import (
    CUDA_ALIGNMENT,
    DeviceMemory,
    SharedWorkArea,
    block_layout,
)
from hetsched.devices.cuda.memory.pinned_memory import Pinned, Pins, Staging, mapping_of
from hetsched.devices.cuda.runtime import Block, Stream
from hetsched.devices.kernels import find_variant, make_kernel
from hetsched.devices.slot_layout import SlotLayout, slot_layout, unit_bytes
from hetsched.errors import UsageError
from hetsched.workload import Kernel, KernelContext, Variant

MAX_KERNELS = 8
"""Kernels, with their plans, that are cached for similar jobs. Arbitrary."""


MAX_FAILED_PLANS = 2
"""Successive plans, each for less memory than the one before, whose failure may be one of memory;
after another one the context is given up. Arbitrary."""


class _PlanFailed(DeviceOutOfMemory):
    """A library couldn't make a plan, for no stated reason."""


class JobPreparer:
    """Makes a `CudaJob`. The device must be idle.

    Parameters
    ----------
    streams : (Stream, Stream)
        For copies in, and for kernels.
    """

    def __init__(
        self, memory: DeviceMemory, pins: Pins, staging: Staging, streams: tuple[Stream, Stream]
    ) -> None:
        self._memory = memory
        self._pins = pins
        self._staging = staging
        self._copy_stream, self._compute_stream = streams
        self._failed_plans = 0

    def prepare(self, job: DeviceJob) -> CudaJob:
        """Do everything for `job` that isn't timed.

        If memory runs out, that of earlier jobs is freed first.
        """
        try:
            prepared = self._prepare(job)
        except Exception as error:
            if classify(error) is not Fault.MEMORY:
                raise
        else:
            self._failed_plans = 0
            return prepared
        # Not in the handler, whose traceback refers to arrays of the failed attempt. So do the
        # tracebacks of its causes, which are in reference cycles.
        gc.collect()
        self._memory.free()
        try:
            prepared = self._prepare(job)
        except _PlanFailed as error:
            self._failed_plans += 1
            if self._failed_plans > MAX_FAILED_PLANS:
                raise DeviceFault(f"{error}, with ever smaller plans") from error
            raise
        self._failed_plans = 0
        return prepared

    def _prepare(self, job: DeviceJob) -> CudaJob:
        variant = find_variant(job, self._memory.runtime.kernels)
        specs = job.workload.arrays(job.params)
        layout = slot_layout(specs, variant.in_place, job.demand, CUDA_ALIGNMENT)
        resident_bytes = {
            name: unit_bytes(host.spec)
            for name, host in job.inputs.items()
            if host.spec.role == "resident"
        }
        work_bytes = job.demand.workspace(job.chunk) if job.demand.work == "max" else 0
        slots_bytes = job.memory or max(1, job.slots) * layout.nbytes(job.chunk)
        blocks = block_layout(resident_bytes, slots_bytes)
        area, block = self._memory.work_area(work_bytes), self._memory.block(blocks.nbytes)
        kernel, warm_sizes = self._kernel(job, variant, area)
        prepared = CudaJob(job, block, blocks, layout, kernel)
        for name in resident_bytes:
            prepared.residents[name] = self._copy_resident(
                block, blocks.residents[name], job.inputs[name]
            )
        self._set_routes(prepared)
        self._warm_up(prepared, warm_sizes)
        return prepared

    def staging_buffer(self, prepared: CudaJob, slot: Slot, route: Route) -> np.ndarray:
        """The pinned buffer that a staged array passes through in `slot`."""
        number = route.staged or 0
        nbytes = route.buffer.nbytes(prepared.job.chunk)
        return self._staging.buffer((slot.index, number), nbytes, prepared.mappings)

    def _kernel(
        self, job: DeviceJob, variant: Variant, area: SharedWorkArea
    ) -> tuple[Kernel, set[int]]:
        """Return the kernel, and the sizes of chunks that it has computed."""
        params = msgspec.json.encode(job.params)
        key = (type(job.workload), params, variant.name, job.chunk, job.threads)
        kernels = self._memory.kernels
        if key not in kernels:
            if len(kernels) >= MAX_KERNELS:
                kernels.pop(next(iter(kernels)))
            kernels[key] = self._make_kernel(job, variant, area), set()
            # Libraries initialise plans in the default stream, which our streams don't wait for.
            self._memory.runtime.synchronize()
        return kernels[key]

    def _make_kernel(self, job: DeviceJob, variant: Variant, area: SharedWorkArea) -> Kernel:
        """Call `make_kernel`; out of memory and a lost context aren't blamed on the variant."""
        try:
            return make_kernel(variant, job, self._kernel_context(job, area))
        except UsageError as error:
            cause = error.__cause__
            if not isinstance(cause, Exception) or classify(cause) is Fault.USAGE:
                raise
            if not is_internal_plan_error(cause):
                raise cause from None
            self._memory.runtime.synchronize()  # raises if the context is lost
            raise _PlanFailed(f"no plan could be made, memory may be low: {cause}") from cause

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
        address = block.address + offset
        copy_to_device(self._copy_stream, address, values.ctypes.data, values.nbytes, self._pins)
        self._copy_stream.record(copied)
        copied.block()
        return block.array(offset, spec.unit_shape, spec.dtype)

    def _set_routes(self, prepared: CudaJob) -> None:
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
                staged = None if is_direct else staged_count
                routes.append(Route(hosts[name], buffer, pinned, staged))
                staged_count += not is_direct
        for route in prepared.input_routes + prepared.output_routes:
            for index in range(job.slots if route.staged is not None else 0):
                self.staging_buffer(prepared, Slot(index, 0), route)

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
        if mapping_of(view) is not None and (pinned is None or not pinned.is_whole):
            what = "all of " if pinned else ""
            reason = self._pins.refused
            job.say(f"can't pin {what}{host.spec.name} ({reason}): its copies take longer")
        return pinned

    def _warm_up(self, prepared: CudaJob, warm_sizes: set[int]) -> None:
        """Run the kernel on zeros, once for each size that is new to it: it may make plans."""
        sizes = {prepared.job.chunk, *prepared.job.chunk_sizes} - warm_sizes
        if not sizes:
            return
        stream, done = self._compute_stream, self._memory.runtime.event()
        block, layout = prepared.block, prepared.block_layout
        for units in sorted(sizes, reverse=True):
            inputs, outputs = prepared.arrays(units, Slot(0, 0))
            stream.clear(block.address + layout.slots, prepared.layout.nbytes(units))
            stream.launch(partial(prepared.kernel, inputs, outputs))
        stream.record(done)
        done.block()
        warm_sizes |= sizes


def _direct_view(host: HostArray) -> np.ndarray | None:
    """Return a view of the first unit if chunks can be copied from or to the host's memory."""
    view = host.direct(0, 1)
    return view if view is not None and view.flags.c_contiguous else None
