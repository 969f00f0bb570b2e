"""One NVIDIA GPU behind the device seam: three streams, events, fixed slots.

Copies in, kernels and copies out have a stream each. A chunk's compute waits for its copy in, its
copy out for its compute, and its copy in for the copy out of the chunk that had the slot before.
In steady state nothing is allocated, planned, pinned or put into the default stream, and each copy
is from or to pinned memory: each of those would make the host wait or the streams line up.

Runs in a process of its own: a sticky error leaves the context useless (DeviceFault), and the
process must end by `os._exit`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import numpy as np

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.devices.base import DeviceFault, DeviceJob
from hetsched.devices.cuda.clock import DeviceClock
from hetsched.devices.cuda.faults import NOT_READY, CudaError, translated
from hetsched.devices.cuda.job import Memory, Prepared, Preparer, Route, copy_in, copy_out
from hetsched.devices.cuda.pinned_memory import SLICE, Pinned, Pins, Staging, default_quota
from hetsched.devices.cuda.probe import budget
from hetsched.devices.cuda.runtime import Event, Facts, Runtime, open_cupy
from hetsched.errors import InternalError
from hetsched.paths import cache_dir


def open_device(info: DeviceInfo, config: DeviceConfig) -> CudaDevice:
    """The GPU that `probe` found; called in its own process, before CuPy is imported.

    Raises
    ------
    Unavailable
    """
    runtime = open_cupy(info.name, info.details.get("uuid", ""), str(cache_dir()))
    return CudaDevice(info, runtime)


@dataclass
class _Marks:
    """The events of one chunk's phases."""

    in_start: Event
    in_end: Event
    compute_start: Event
    compute_end: Event
    out_start: Event
    out_end: Event


@dataclass
class _Flight:
    """A chunk on its way. `read_at`, `written_at`: the host's part of a staged copy, seconds."""

    chunk: Chunk
    slot: Slot
    marks: _Marks
    read_at: float | None = None
    written_at: float | None = None
    landed: bool = False


class CudaDevice:
    """A GPU; see `hetsched.devices.base.Device`.

    Parameters
    ----------
    info : DeviceInfo
        As probed; `describe` refines it by what the runtime says. `memory` is an upper limit.
    pinned : int, bytes
        Quota of pinned host memory.
    """

    def __init__(
        self,
        info: DeviceInfo,
        runtime: Runtime,
        pinned: int | None = None,
        slice_bytes: int = SLICE,
    ) -> None:
        self._name = info.name
        self._runtime = runtime
        self._dead = ""
        with translated(info.name, opening=True):
            facts = runtime.facts
            self._h2d, self._compute, self._d2h = (runtime.stream() for _ in range(3))
            self._clock = DeviceClock(runtime, self._h2d)
        self._info = _refined(info, facts)
        quota = default_quota() if pinned is None else pinned
        self._pins = Pins(runtime, quota if facts.register else 0, slice_bytes)
        self._staging = Staging(self._pins)
        self._preparer = Preparer(
            Memory(runtime), self._pins, self._staging, (self._h2d, self._compute)
        )
        self._job: Prepared | None = None
        self._flights: deque[_Flight] = deque()
        self._in_slot: dict[int, _Flight] = {}
        self._spare: list[_Marks] = []
        self._followed: _Marks | None = None
        self._used = 0.0

    def describe(self) -> DeviceInfo:
        return self._info

    def close(self) -> None:
        """Unpin everything: for another device in the same process, which only tests have."""
        self.prepare(None)
        self._pins.clear()

    def prepare(self, job: DeviceJob | None) -> None:
        with self._guard():
            self._drain()
            self._job = None
            self._pins.sweep()
            if job is not None:
                self._job = self._preparer.prepare(job)
                self._clock.set()
                self._recycle(None)

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        with self._guard():
            job = self._ready()
            job.arrays(chunk.count, slot)  # checks that the slot lies in the block
            flight = self._start(chunk, slot)
            former = self._in_slot.get(slot.index)
            sources = [self._source(job, flight, former, route) for route in job.into]
            self._await_slot(flight, former)
            self._h2d.record(flight.marks.in_start)
            for route, (address, pinned) in zip(job.into, sources, strict=True):
                target = job.address(route.buffer, chunk, slot)
                copy_in(self._h2d, target, address, route.buffer.nbytes(chunk.count), pinned)
            self._h2d.record(flight.marks.in_end)

    def compute(self, chunk: Chunk, slot: Slot) -> None:
        with self._guard():
            marks = self._flight(chunk).marks
            inputs, outputs = self._ready().arrays(chunk.count, slot)
            kernel = self._ready().kernel
            self._compute.wait(marks.in_end)
            self._compute.record(marks.compute_start)
            self._compute.launch(lambda: kernel(inputs, outputs))
            self._compute.record(marks.compute_end)

    def copy_out(self, chunk: Chunk, slot: Slot) -> None:
        with self._guard():
            job, flight = self._ready(), self._flight(chunk)
            former = self._in_slot.get(slot.index)
            if former is not None and any(route.staged is not None for route in job.out):
                self._land(former)  # its results are still in the buffers that come next
            targets = [self._target(job, flight, route) for route in job.out]
            self._d2h.wait(flight.marks.compute_end)
            self._d2h.record(flight.marks.out_start)
            for route, (address, pinned) in zip(job.out, targets, strict=True):
                source = job.address(route.buffer, chunk, slot)
                copy_out(self._d2h, address, source, route.buffer.nbytes(chunk.count), pinned)
            self._d2h.record(flight.marks.out_end)
            self._in_slot[slot.index] = flight

    def wait(self, chunk: Chunk) -> ChunkTimes:
        with self._guard():
            flight = self._flight(chunk)
            self._land(flight)
            times = self._times(flight)
            self._flights.remove(flight)
            self._clock.follow(flight.marks.in_start)
            self._recycle(flight.marks)
            before, self._used = self._used, time.process_time()
            return msgspec.structs.replace(times, host_overhead=self._used - before)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Errors become ours; after a sticky one nothing is tried any more."""
        if self._dead:
            raise DeviceFault(self._dead)
        try:
            with translated(self._name):
                yield
        except DeviceFault as fault:
            self._dead = str(fault)
            raise

    def _ready(self) -> Prepared:
        if self._job is None:
            raise InternalError(f"{self._name}: no job is prepared")
        return self._job

    def _start(self, chunk: Chunk, slot: Slot) -> _Flight:
        if not self._flights:
            self._used = time.process_time()  # the process feeds this device and does nothing else
            if self._clock.refresh():
                self._recycle(None)
        marks = self._spare.pop() if self._spare else self._new_marks()
        flight = _Flight(chunk, slot, marks)
        self._flights.append(flight)
        return flight

    def _flight(self, chunk: Chunk) -> _Flight:
        for flight in self._flights:
            if flight.chunk.id == chunk.id:
                return flight
        raise InternalError(f"{self._name}: chunk {chunk.id} was not copied in")

    def _await_slot(self, flight: _Flight, former: _Flight | None) -> None:
        """The copy in starts when the slot is free, and after a barrier when all of them are."""
        if former is not None and not former.landed:
            self._h2d.wait(former.marks.out_end)
        if flight.chunk.barrier and len(self._flights) > 1:
            self._h2d.wait(self._flights[-2].marks.out_end)

    def _source(
        self, job: Prepared, flight: _Flight, former: _Flight | None, route: Route
    ) -> tuple[int, Pinned | None]:
        """The host's address of an input, filled with the chunk's units."""
        chunk = flight.chunk
        if route.pinned is not None:
            return _address(route.host.direct(chunk.first, chunk.count)), route.pinned
        if flight.read_at is None:
            _copied_from(former)
            flight.read_at = time.monotonic()
        memory, pinned = self._preparer.stage(job, flight.slot, route)
        route.host.read(chunk.first, chunk.count, _shaped(memory, route, chunk.count))
        return memory.ctypes.data, pinned

    def _target(self, job: Prepared, flight: _Flight, route: Route) -> tuple[int, Pinned | None]:
        chunk = flight.chunk
        if route.pinned is not None:
            return _address(route.host.direct(chunk.first, chunk.count)), route.pinned
        memory, pinned = self._preparer.stage(job, flight.slot, route)
        return memory.ctypes.data, pinned

    def _land(self, flight: _Flight) -> None:
        """Wait for the copy out; then write what came by way of a buffer."""
        if flight.landed:
            return
        _block(flight.marks.out_end)
        job, chunk = self._ready(), flight.chunk
        for route in job.out:
            if route.staged is not None:
                memory, _ = self._preparer.stage(job, flight.slot, route)
                route.host.write(chunk.first, chunk.count, _shaped(memory, route, chunk.count))
                flight.written_at = time.monotonic()
        flight.landed = True

    def _times(self, flight: _Flight) -> ChunkTimes:
        """Phases in order: rounding must not turn the borders of two phases round."""
        marks, at = flight.marks, self._clock.seconds
        start, in_end = at(marks.in_start), at(marks.in_end)
        if flight.read_at is not None:
            start = min(start, flight.read_at)
        compute = max(in_end, at(marks.compute_start))
        compute_end = max(compute, at(marks.compute_end))
        out = max(compute_end, at(marks.out_start))
        out_end = max(out, at(marks.out_end), flight.written_at or out)
        return ChunkTimes(
            copy_in=(start, max(start, in_end)),
            compute=(compute, compute_end),
            copy_out=(out, out_end),
        )

    def _drain(self) -> None:
        """Let all streams run empty and forget the chunks that nobody waited for."""
        self._runtime.synchronize()
        self._spare += [flight.marks for flight in self._flights]
        self._flights.clear()
        self._in_slot.clear()

    def _recycle(self, followed: _Marks | None) -> None:
        """`followed`: the events that the clock counts from; those before are free again."""
        if self._followed is not None:
            self._spare.append(self._followed)
        self._followed = followed

    def _new_marks(self) -> _Marks:
        return _Marks(*(self._runtime.event() for _ in range(6)))


def _block(event: Event) -> None:
    """Sleep until `event` has passed. Raises on a fault."""
    status = event.status()
    if status == NOT_READY:
        event.block()
    elif status != 0:
        raise CudaError(status, "a stream")


def _copied_from(former: _Flight | None) -> None:
    """Wait until the copy from the buffers of `former` is over: they will be filled again."""
    if former is not None and not former.landed:
        _block(former.marks.in_end)


def _address(view: np.ndarray | None) -> int:
    if view is None:
        raise InternalError("an array that could be copied directly no longer can")
    return view.ctypes.data


def _shaped(memory: np.ndarray, route: Route, count: int) -> np.ndarray:
    """The first `count` units of a staging buffer, as the host array sees them."""
    used = memory[: route.buffer.nbytes(count)]
    spec = route.host.spec
    return used.view(spec.dtype).reshape(count, *spec.unit_shape)


def _refined(info: DeviceInfo, facts: Facts) -> DeviceInfo:
    """`info` with what only the runtime knows: memory that is really left, copy engines."""
    display = info.details.get("display") == "active" or facts.watchdog
    return msgspec.structs.replace(
        info,
        identity=info.identity or facts.identity,
        memory=budget(facts.free, facts.total, display, info.memory),
        engines=facts.engines,
        details={**info.details, "runtime": facts.version},
    )
