"""A chunk between its copy in and its copy out: its events, and the times computed from them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from hetsched.device import Chunk, ChunkTimes, Slot
from hetsched.devices.cuda.clock import DeviceClock
from hetsched.devices.cuda.faults import NOT_READY, CudaError
from hetsched.devices.cuda.job import CudaJob, Route
from hetsched.devices.cuda.preparation import JobPreparer
from hetsched.devices.cuda.runtime import Event, Runtime


@dataclass
class PhaseEvents:
    """Events that mark one chunk's phases."""

    in_start: Event
    in_end: Event
    compute_start: Event
    compute_end: Event
    out_start: Event
    out_end: Event


class EventPool:
    """A pool of events for chunks, so that none is created in steady state."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._free: list[PhaseEvents] = []
        self._clock_base: PhaseEvents | None = None

    def take(self) -> PhaseEvents:
        if self._free:
            return self._free.pop()
        return PhaseEvents(*(self._runtime.event() for _ in range(6)))

    def give_back(self, events: PhaseEvents) -> None:
        self._free.append(events)

    def set_clock_base(self, events: PhaseEvents | None) -> None:
        """Keep `events`, the new base of the clock, and free the events of the old base."""
        if self._clock_base is not None:
            self._free.append(self._clock_base)
        self._clock_base = events


@dataclass
class ChunkFlight:
    """A chunk that was copied in and not yet waited for.

    Attributes
    ----------
    staging_start, staging_end : float or None, seconds
        When the host began to fill staging buffers, and when it had emptied them.
    has_landed : bool
        Its outputs have reached the host.
    staged_outputs : list of Route
        Outputs that pass through staging buffers, known with the copy out.
    """

    chunk: Chunk
    slot: Slot
    events: PhaseEvents
    staging_start: float | None = None
    staging_end: float | None = None
    has_landed: bool = False
    staged_outputs: list[Route] = field(default_factory=list)

    def source(
        self, job: CudaJob, preparer: JobPreparer, route: Route, previous: ChunkFlight | None
    ) -> int:
        """Return the host address of an input; a staging buffer is first filled with the units.

        `previous`: the chunk that used the slot, and so the buffer, before.
        """
        chunk = self.chunk
        address = route.direct_address(chunk)
        if address is not None:
            return address
        if self.staging_start is None:
            _wait_for_copy_in(previous)
            self.staging_start = time.monotonic()
        memory = preparer.staging_buffer(job, self.slot, route)
        route.host.read(chunk.first, chunk.count, _shaped(memory, route, chunk.count))
        return memory.ctypes.data

    def target(self, job: CudaJob, preparer: JobPreparer, route: Route) -> int:
        """Return the host address that an output is copied to."""
        address = route.direct_address(self.chunk)
        if address is not None:
            return address
        self.staged_outputs.append(route)
        return preparer.staging_buffer(job, self.slot, route).ctypes.data

    def land(self, job: CudaJob, preparer: JobPreparer) -> None:
        """Wait for the copy out, then write the outputs that passed through a staging buffer."""
        if self.has_landed:
            return
        block_until(self.events.out_end)
        chunk = self.chunk
        for route in self.staged_outputs:
            memory = preparer.staging_buffer(job, self.slot, route)
            route.host.write(chunk.first, chunk.count, _shaped(memory, route, chunk.count))
            self.staging_end = time.monotonic()
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


def block_until(event: Event) -> None:
    """Sleep until `event` has passed. Raises on a fault."""
    status = event.status()
    if status == NOT_READY:
        event.block()
    elif status != 0:
        raise CudaError(status, "a stream")


def _wait_for_copy_in(previous: ChunkFlight | None) -> None:
    """Wait until the copy from the staging buffers of `previous` is over; they are reused."""
    if previous is not None and not previous.has_landed:
        block_until(previous.events.in_end)


def _shaped(memory: np.ndarray, route: Route, units: int) -> np.ndarray:
    """Return the first `units` of a staging buffer, shaped like the host array."""
    raw = memory[: route.buffer.nbytes(units)]
    spec = route.host.spec
    return raw.view(spec.dtype).reshape(units, *spec.unit_shape)
