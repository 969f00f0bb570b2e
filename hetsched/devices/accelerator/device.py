"""One accelerator: three queues, events, fixed slots.

Copies in, kernels and copies out have a queue each. A chunk's compute waits for its copy in, its
copy out for its compute, and its copy in for the copy out of the chunk that used the slot before.
In steady state nothing is allocated, planned or pinned, and each copy is from or to pinned memory:
any of these would block the host or serialise the queues.

One copy engine copies in the order I1 I2 O1 I3 O2 ...: a copy out is deferred until the next copy
in was issued, unless that one needs its slot or nothing follows, since the copy in would otherwise
wait behind it for the chunk's kernel.

A sticky error leaves the context unusable (DeviceFault): its process must end by `os._exit`,
unless that is the caller's, whose functions it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import numpy as np

from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.devices.accelerator.iterating import AcceleratorStages
from hetsched.devices.accelerator.pinned import SLICE_BYTES, Pins, default_quota
from hetsched.devices.accelerator.preparation import JobPreparer, LoadedJob, Route
from hetsched.devices.accelerator.runtime import (
    Copy,
    Event,
    Fault,
    PhaseEvents,
    Queue,
    Runtime,
    translated,
)
from hetsched.devices.base import DeviceFault, DeviceJob, IterativeJob, StageExecutor
from hetsched.devices.kernels import StageTimes, range_of
from hetsched.errors import InternalError
from hetsched.workload.protocol import KernelArrays

MAX_ANCHORS = 3
"""Number of anchors, of which the tightest is used: a context switch can spoil one."""
STALE_SECONDS = 1.0
"""Seconds after which an idle device's clock is set again; clocks drift by parts per million."""


class Accelerator:
    """An accelerator; see `hetsched.devices.base.Device`.

    `info`: as probed; `describe` adds what the runtime reports. `limit`: bytes of device memory
    that a job may use. `pinned`: quota of pinned host memory, bytes; `slice_bytes` per call.
    """

    def __init__(
        self,
        info: DeviceInfo,
        runtime: Runtime,
        limit: int | None = None,
        pinned: int | None = None,
        slice_bytes: int = SLICE_BYTES,
    ) -> None:
        self._name = info.name
        self._runtime = runtime
        self._fault = ""
        with translated(info.name, lambda error: Fault.ABSENT):
            facts = runtime.facts
            self._h2d, self._compute, self._d2h = (runtime.queue() for _ in range(3))
            self._clock = DeviceClock(runtime, self._h2d)
            memory = runtime.memory()
        self._most_free = memory.free
        self._reserve = facts.reserve
        self._limit = limit
        self._info = msgspec.structs.replace(
            info,
            identity=info.identity or facts.identity,
            memory=self._budget(memory.free),
            engines=facts.engines,
            details={**info.details, **({"runtime": facts.version} if facts.version else {})},
        )
        quota = default_quota() if pinned is None else pinned
        self._pins = Pins(runtime, quota if facts.can_pin else 0, slice_bytes)
        self._preparer = JobPreparer(
            runtime, self._pins, (self._h2d, self._compute), facts.needs_warm_up
        )
        self._stage_times = StageTimes() if facts.needs_warm_up else None
        self._job: LoadedJob | None = None
        self._flights: dict[int, ChunkFlight] = {}
        """By the chunk's id."""
        self._in_slot: dict[int, ChunkFlight] = {}
        """The last chunk by slot, and so the last user of its staging buffers."""
        self._in_memory: list[ChunkFlight] = []
        """Chunks that the next one in their memory must wait for, also after they have ended."""
        self._deferred: ChunkFlight | None = None

    def describe(self) -> DeviceInfo:
        return self._info

    def close(self) -> None:
        """The process goes on without this device."""
        self.prepare(None)
        self._pins.clear()

    def prepare(self, job: DeviceJob | None) -> None:
        with self._guard():
            self._drain()
            self._job = None
            self._pins.begin_job()
            if job is not None:
                self._job = self._preparer.prepare(job)
                self._clock.set()

    def prepare_iterations(self, job: IterativeJob) -> StageExecutor:
        self.prepare(None)
        self.release_memory()
        memory = job.job.memory or self.usable_memory()
        with self._guard():
            queues = self._h2d, self._compute, self._d2h
            return AcceleratorStages(
                job, self._runtime, queues, self._pins, memory, self._guard, self._stage_times
            )

    def usable_memory(self) -> int:
        with self._guard():
            return self._budget(self._free_memory())

    def keeps_memory(self) -> bool:
        return self._preparer.keeps_memory

    def is_memory_short(self) -> bool:
        """Return whether little is free, or others took more than the reserve since it opened.

        An allocation that fails in another process can't be seen from here. So once there is one
        with much memory, nothing is kept from it.
        """
        with self._guard():
            free = self._free_memory()
            self._most_free = max(self._most_free, free)
            is_little = self._runtime.memory().free < self._reserve
            return is_little or self._most_free - free > self._reserve

    def release_memory(self) -> None:
        with self._guard():
            self._drain()
            self._preparer.free()
            self._pins.sweep()

    def forget_host_memory(self) -> None:
        with self._guard():
            self._pins.sweep()

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        with self._guard():
            if self._job is None:
                raise InternalError(f"{self._name}: got a chunk before any job was prepared")
            self._job.arrays(chunk.count, slot)  # checks that the slot lies in the block
            if not self._flights and self._clock.is_stale():
                self._clock.set()
            flight = ChunkFlight(self._job, chunk, slot, PhaseEvents(self._runtime))
            self._flights[chunk.id] = flight
            before = self._replace(flight)
            if self._deferred in before:
                self._issue_deferred()
            copies = flight.copies_in(self._in_slot.get(slot.index))
            for other in before:
                self._h2d.wait(other.events.out_end)
            self._h2d.record(flight.events.in_start)
            self._h2d.copy_in(self._pins.split(copies), chunk.count)
            self._h2d.record(flight.events.in_end)
            self._issue_deferred()

    def compute(self, chunk: Chunk, slot: Slot) -> None:
        with self._guard():
            flight = self._flight(chunk)
            events, kernel = flight.events, flight.job.kernel
            inputs, outputs = map(KernelArrays, flight.job.arrays(chunk.count, slot))
            self._compute.wait(events.in_end)
            self._compute.record(events.compute_start)
            place = range_of(kernel, chunk.first, chunk.count)
            self._compute.launch(lambda: kernel(inputs, outputs, *place), chunk.count)
            self._compute.record(events.compute_end)

    def copy_out(self, chunk: Chunk, slot: Slot) -> None:
        with self._guard():
            flight, previous = self._flight(chunk), self._in_slot.get(slot.index)
            is_staged = any(route.staged is not None for route in flight.job.output_routes)
            if previous is not None and is_staged:
                previous.land()  # its outputs may still be in these buffers
            self._in_slot[slot.index] = self._deferred = flight
            if self._info.engines != 1 or chunk.last:
                self._issue_deferred()

    def wait(self, chunk: Chunk) -> ChunkTimes:
        with self._guard():
            flight = self._flight(chunk)
            if flight is self._deferred:
                self._issue_deferred()
            flight.land()
            times = flight.times(self._clock)
            del self._flights[chunk.id]
            self._clock.follow(flight.events.in_start)
            return times

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Translate errors; after a sticky one every call fails."""
        if self._fault:
            raise DeviceFault(self._fault)
        try:
            with translated(self._name, self._runtime.classify):
                yield
        except DeviceFault as fault:
            self._fault = str(fault)
            raise

    def _free_memory(self) -> int:
        memory = self._runtime.memory()
        return memory.free + memory.reusable + self._preparer.device_bytes

    def _budget(self, free: int) -> int:
        """Return the bytes of `free` for jobs (b of Ilic & Sousa)."""
        usable = max(0, free - self._reserve)
        return usable if self._limit is None else min(usable, self._limit)

    def _flight(self, chunk: Chunk) -> ChunkFlight:
        if chunk.id not in self._flights:
            raise InternalError(f"{self._name}: chunk {chunk.id} was not copied in")
        return self._flights[chunk.id]

    def _replace(self, flight: ChunkFlight) -> list[ChunkFlight]:
        """Put a chunk in the place of others; return those that its copy in must wait for.

        After a barrier these are all. Later copies in come after this one, so also after them.
        """
        is_barrier = flight.chunk.barrier
        before = [other for other in self._in_memory if is_barrier or other.overlaps(flight)]
        self._in_memory = [other for other in self._in_memory if other not in before]
        self._in_memory.append(flight)
        return before

    def _issue_deferred(self) -> None:
        flight, self._deferred = self._deferred, None
        if flight is None:
            return
        copies = flight.copies_out()
        self._d2h.wait(flight.events.compute_end)
        self._d2h.record(flight.events.out_start)
        self._d2h.copy_out(self._pins.split(copies), flight.chunk.count)
        self._d2h.record(flight.events.out_end)

    def _drain(self) -> None:
        self._issue_deferred()
        self._runtime.synchronize()
        self._flights.clear()
        self._in_slot.clear()
        self._in_memory.clear()


# ---- a chunk between its copy in and its copy out


@dataclass(eq=False)
class ChunkFlight:
    """A chunk that was copied in and not yet waited for; landed: its outputs are on the host."""

    job: LoadedJob
    chunk: Chunk
    slot: Slot
    events: PhaseEvents
    staging_start: float | None = None
    """When the host began to fill staging buffers; `staging_end`: when it had emptied them."""
    staging_end: float | None = None
    has_landed: bool = False
    staged_outputs: list[Route] = field(default_factory=list)

    def overlaps(self, other: ChunkFlight) -> bool:
        (start, end), (first, stop) = self._span(), other._span()
        return start < stop and first < end

    def _span(self) -> tuple[int, int]:
        start = self.slot.offset
        return start, start + self.job.layout.nbytes(self.chunk.count)

    def copies_in(self, previous: ChunkFlight | None) -> list[Copy]:
        """Fill staging buffers, which `previous` in the slot has used; return the copies."""
        return [
            self._copy(route, self._source(route, previous)) for route in self.job.input_routes
        ]

    def copies_out(self) -> list[Copy]:
        return [self._copy(route, self._target(route)) for route in self.job.output_routes]

    def _copy(self, route: Route, host: np.ndarray) -> Copy:
        offset = self.job.offset(route.buffer, self.chunk.count, self.slot)
        return Copy(self.job.block, offset, host)

    def _source(self, route: Route, previous: ChunkFlight | None) -> np.ndarray:
        chunk = self.chunk
        direct = route.direct(chunk)
        if direct is not None:
            return direct
        if self.staging_start is None:
            if previous is not None and not previous.has_landed:
                previous.events.in_end.wait()
            self.staging_start = self.job.host_seconds()
        memory = self.job.staging_buffer(self.slot, route, chunk.count)
        route.host.read(chunk.first, chunk.count, memory)
        return memory

    def _target(self, route: Route) -> np.ndarray:
        direct = route.direct(self.chunk)
        if direct is not None:
            return direct
        self.staged_outputs.append(route)
        return self.job.staging_buffer(self.slot, route, self.chunk.count)

    def land(self) -> None:
        if self.has_landed:
            return
        self.events.out_end.wait()
        chunk = self.chunk
        for route in self.staged_outputs:
            memory = self.job.staging_buffer(self.slot, route, chunk.count)
            route.host.write(chunk.first, chunk.count, memory)
            self.staging_end = self.job.host_seconds()
        self.has_landed = True

    def times(self, clock: DeviceClock) -> ChunkTimes:
        """Return the times of the phases, kept in order despite rounding."""
        events, at = self.events, clock.seconds
        start, in_end = at(events.in_start), at(events.in_end)
        if self.staging_start is not None:
            start = min(start, self.staging_start)
        compute = max(in_end, at(events.compute_start))
        compute_end = max(compute, at(events.compute_end))
        out = max(compute_end, at(events.out_start))
        out_end = max(out, at(events.out_end), self.staging_end or out)
        return ChunkTimes(
            copy_in=(start, max(start, in_end)),
            compute=(compute, compute_end),
            copy_out=(out, out_end),
        )


class DeviceClock:
    """Times of events on the host's clock, to the microseconds that a launch takes.

    The time between two events may be a float32 of milliseconds, which loses microseconds over
    long intervals. So each time is measured from a recent event: the start of the previous chunk.
    """

    def __init__(self, runtime: Runtime, queue: Queue) -> None:
        self._runtime = runtime
        self._queue = queue
        self._base = runtime.event()
        self._seconds = 0.0
        self._set_time = float("-inf")

    def set(self) -> None:
        """Anchor to the host's clock. The device must be idle."""
        best = float("inf")
        for _ in range(MAX_ANCHORS):
            spare = self._runtime.event()
            before = self._host_seconds()
            self._queue.record(spare)
            while not spare.is_done():  # a few microseconds: waking up would take longer
                pass
            after = self._host_seconds()
            if after - before < best:
                best = after - before
                self._base, self._seconds = spare, (before + after) / 2
        self._set_time = self._host_seconds()

    def is_stale(self) -> bool:
        return self._host_seconds() - self._set_time > STALE_SECONDS

    def seconds(self, event: Event) -> float:
        return self._seconds + event.seconds_after(self._base)

    def follow(self, event: Event) -> None:
        self._seconds, self._base = self.seconds(event), event

    def _host_seconds(self) -> float:
        return self._runtime.host_seconds() or 0.0
