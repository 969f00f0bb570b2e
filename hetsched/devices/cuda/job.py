"""A job made ready on a CUDA device: memory, kernel, residents, and how each array travels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np

from hetsched.device import Chunk, Slot
from hetsched.devices.base import DeviceJob, HostArray
from hetsched.devices.cpu.kernels import made
from hetsched.devices.cuda.faults import Fault, classify
from hetsched.devices.cuda.pinned_memory import Pinned, Pins, Staging, mapping_of
from hetsched.devices.cuda.runtime import TO_DEVICE, TO_HOST, Block, Runtime, Stream
from hetsched.devices.cuda.slots import Buffer, Sections, SlotLayout, sections, slot_layout
from hetsched.devices.slots import unit_bytes
from hetsched.errors import InternalError, UsageError
from hetsched.workload import Kernel, KernelContext, Variant

KERNELS = 8
"""Kernels, with their plans, that are kept for jobs like those before. Arbitrary."""


class WorkArea:
    """`KernelContext.allocate`: one area for all kernels, which run one after the other.

    Plans that a workload keeps from job to job hold on to the area that they were made with, so it
    is a block of its own, and another one only where more is needed.
    """

    def __init__(self, runtime: Runtime, nbytes: int) -> None:
        self._runtime = runtime
        self._block = runtime.allocate(nbytes) if nbytes else None

    @property
    def nbytes(self) -> int:
        return self._block.nbytes if self._block else 0

    def __call__(self, nbytes: int) -> Any:
        """The area, or memory apart for a library that takes more than was foreseen."""
        block = self._block
        if block is None or nbytes > block.nbytes:
            block = self._runtime.allocate(nbytes)
        return block.pointer(0)


class Memory:
    """The device's block, its work area, and the kernels made with that. Kept between jobs."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.kernels: dict[tuple[Any, ...], Kernel] = {}
        self._block: Block | None = None
        self._area: WorkArea | None = None

    def block(self, nbytes: int) -> Block:
        """At least `nbytes`: the present block, or a new one in its stead."""
        if self._block is None or self._block.nbytes < nbytes:
            self._block = None  # given back first: both together may not fit
            self._block = self.runtime.allocate(nbytes)
        return self._block

    def work_area(self, nbytes: int) -> WorkArea:
        """At least `nbytes`: the present area, or a new one, and no kernels yet.

        A job that needs none counts none in its budget: the present one goes.
        """
        needless = nbytes == 0 and self._area is not None and self._area.nbytes > 0
        if self._area is None or self._area.nbytes < nbytes or needless:
            self.kernels.clear()
            self._area = None
            self._area = WorkArea(self.runtime, nbytes)
        return self._area

    def free(self) -> None:
        """Give everything back."""
        self.kernels.clear()
        self._block = None
        self._area = None


@dataclass(frozen=True)
class Route:
    """How one split array travels. `staged`: its number among those that pass through buffers."""

    host: HostArray
    buffer: Buffer
    pinned: Pinned | None
    staged: int | None


@dataclass
class Prepared:
    """What `prepare` leaves behind for the chunks."""

    job: DeviceJob
    block: Block
    place: Sections
    layout: SlotLayout
    kernel: Kernel
    residents: dict[str, Any]
    into: list[Route]
    out: list[Route]
    keep: set[int]
    offsets: dict[int, list[int]] = field(default_factory=dict)
    views: dict[tuple[int, int], tuple[dict[str, Any], dict[str, Any]]] = field(
        default_factory=dict
    )

    def address(self, buffer: Buffer, chunk: Chunk, slot: Slot) -> int:
        """Where a chunk's part of an array lies in device memory."""
        return self.block.address + self._offset(buffer, chunk.count, slot)

    def arrays(self, count: int, slot: Slot) -> tuple[dict[str, Any], dict[str, Any]]:
        """The kernel's inputs and outputs for `count` units in `slot`."""
        key = (slot.offset, count)
        if key not in self.views:
            self._check(count, slot)
            inputs = self._views(self.layout.inputs, count, slot)
            outputs = self._views(self.layout.outputs, count, slot)
            self.views[key] = (inputs | self.residents, outputs)
        return self.views[key]

    def _views(self, buffers: Mapping[str, Buffer], count: int, slot: Slot) -> dict[str, Any]:
        return {
            name: self.block.array(self._offset(b, count, slot), b.shape(count), b.spec.dtype)
            for name, b in buffers.items()
        }

    def _offset(self, buffer: Buffer, count: int, slot: Slot) -> int:
        if count not in self.offsets:
            self.offsets[count] = self.layout.offsets(count)
        return self.place.slots + slot.offset + self.offsets[count][buffer.index]

    def _check(self, count: int, slot: Slot) -> None:
        """A slot past the end would overwrite another job's memory, or somebody else's."""
        end = slot.offset + self.layout.nbytes(count)
        if slot.offset < 0 or end > self.place.room or count > self.job.chunk:
            raise InternalError(
                f"slot {slot.index} at {slot.offset} with {count} units ends at {end} of"
                f" {self.place.room} bytes; a chunk has at most {self.job.chunk} units"
            )


class Preparer:
    """Makes `Prepared` of a job. The device must be idle."""

    def __init__(
        self, memory: Memory, pins: Pins, staging: Staging, streams: tuple[Stream, Stream]
    ) -> None:
        self._memory = memory
        self._pins = pins
        self._staging = staging
        self._copying, self._computing = streams

    def prepare(self, job: DeviceJob) -> Prepared:
        """All that isn't timed: block, kernel, residents, routes, warm-up."""
        variant = _variant(job, self._memory.runtime.kernels)
        layout = slot_layout(job.workload.arrays(job.params), variant.in_place, job.demand)
        resident = {
            name: unit_bytes(host.spec)
            for name, host in job.inputs.items()
            if host.spec.role == "resident"
        }
        work = job.demand.workspace(job.chunk) if job.demand.work == "max" else 0
        room = job.memory or max(1, job.slots) * layout.nbytes(job.chunk)
        place = sections(resident, room)
        area, block = self._reserve(work, place.nbytes)
        kernel, fresh = self._kernel(job, variant, area)
        keep: set[int] = set()
        ready = Prepared(job, block, place, layout, kernel, {}, [], [], keep)
        for name in resident:
            ready.residents[name] = self._resident(block, place.residents[name], job.inputs[name])
        self._route(ready)
        if fresh:
            self._warm_up(ready)
        return ready

    def stage(self, ready: Prepared, slot: Slot, route: Route) -> tuple[np.ndarray, Pinned | None]:
        """The pinned buffer that a staged array passes through in `slot`."""
        number = route.staged or 0
        return self._staging.buffer(
            (slot.index, number), route.buffer.nbytes(ready.job.chunk), ready.keep
        )

    def _reserve(self, work: int, nbytes: int) -> tuple[WorkArea, Block]:
        """Work area and block. What a former job had may be in the way: then without it."""
        try:
            return self._memory.work_area(work), self._memory.block(nbytes)
        except Exception as error:
            if classify(error) is not Fault.MEMORY:
                raise
        self._memory.free()
        return self._memory.work_area(work), self._memory.block(nbytes)

    def _kernel(self, job: DeviceJob, variant: Variant, area: WorkArea) -> tuple[Kernel, bool]:
        """The kernel, and whether it was only just made."""
        params = msgspec.json.encode(job.params)
        key = (type(job.workload), params, variant.name, job.chunk, job.threads)
        kernels = self._memory.kernels
        fresh = key not in kernels
        if fresh:
            if len(kernels) >= KERNELS:
                kernels.pop(next(iter(kernels)))
            kernels[key] = self._made(job, variant, area)
            # Libraries set plans up in the default stream, which orders nothing with ours.
            self._memory.runtime.synchronize()
        return kernels[key], fresh

    def _made(self, job: DeviceJob, variant: Variant, area: WorkArea) -> Kernel:
        """See `kernels.made`; out of memory and a lost context are no fault of the variant."""
        try:
            return made(variant, job, self._kernel_context(job, area))
        except UsageError as error:
            cause = error.__cause__
            if isinstance(cause, Exception) and classify(cause) is not Fault.USAGE:
                raise cause from None
            raise

    def _kernel_context(self, job: DeviceJob, area: WorkArea) -> KernelContext:
        return KernelContext(
            kind=self._memory.runtime.kernels,
            threads=job.threads,
            cache=job.cache,
            xp=self._memory.runtime.xp,
            allocate=area,
            say=job.say,
        )

    def _resident(self, block: Block, offset: int, host: HostArray) -> Any:
        """Copy a resident array in, whole; it may be pageable: nothing is timed here."""
        spec = host.spec
        whole = host.direct(0, 0)
        if whole is None or not whole.flags.c_contiguous:
            whole = np.empty(spec.unit_shape, spec.dtype)
            host.read(0, 0, whole)
        done = self._memory.runtime.event()
        self._copying.copy(block.address + offset, whole.ctypes.data, whole.nbytes, TO_DEVICE)
        self._copying.record(done)
        done.block()
        return block.array(offset, spec.unit_shape, spec.dtype)

    def _route(self, ready: Prepared) -> None:
        job, layout, number = ready.job, ready.layout, 0
        for hosts, buffers, routes in (
            (job.inputs, layout.inputs, ready.into),
            (job.outputs, layout.outputs, ready.out),
        ):
            for name, buffer in buffers.items():
                pinned = self._direct(job, hosts[name], ready.keep)
                routes.append(Route(hosts[name], buffer, pinned, None if pinned else number))
                number += pinned is None
        for route in ready.into + ready.out:
            for index in range(job.slots if route.staged is not None else 0):
                self.stage(ready, Slot(index, 0), route)

    def _direct(self, job: DeviceJob, host: HostArray, keep: set[int]) -> Pinned | None:
        view = host.direct(0, 1)
        if view is None or not view.flags.c_contiguous:
            return None
        pinned = self._pins.cover(view, keep)
        if pinned is None and mapping_of(view) is not None:
            job.say(f"{host.spec.name} can't be pinned ({self._pins.refused}): copies take longer")
        return pinned

    def _warm_up(self, ready: Prepared) -> None:
        """Run the kernel once for all the sizes that its plans may be made for.

        Plans go by powers of two: the largest chunk has some of them, one unit less than the power
        below has the rest. What the slots hold doesn't matter yet.
        """
        chunk = ready.job.chunk
        done = self._memory.runtime.event()
        for count in sorted({chunk, max(1, (1 << (chunk.bit_length() - 1)) - 1)}):
            inputs, outputs = ready.arrays(count, Slot(0, 0))
            self._computing.launch(partial(ready.kernel, inputs, outputs))
        self._computing.record(done)
        done.block()


def _variant(job: DeviceJob, kind: str) -> Variant:
    for variant in job.workload.variants(kind):
        if variant.name == job.variant:
            return variant
    raise UsageError(f"{job.workload.name} has no variant {job.variant!r} for {kind} here")


def copy_in(stream: Stream, target: int, source: int, nbytes: int, pinned: Pinned | None) -> None:
    """Host to device, cut where two registrations meet."""
    parts = pinned.pieces(source, nbytes) if pinned else [(source, nbytes)]
    for start, length in parts:
        stream.copy(target + start - source, start, length, TO_DEVICE)


def copy_out(stream: Stream, target: int, source: int, nbytes: int, pinned: Pinned | None) -> None:
    """Device to host, cut likewise."""
    parts = pinned.pieces(target, nbytes) if pinned else [(target, nbytes)]
    for start, length in parts:
        stream.copy(start, source + start - target, length, TO_HOST)
