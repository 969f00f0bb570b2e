"""One NVIDIA GPU: three streams, events, fixed slots.

Copies in, kernels and copies out have a stream each. A chunk's compute waits for its copy in, its
copy out for its compute, and its copy in for the copy out of the chunk that used the slot before.
In steady state nothing is allocated, planned, pinned or issued to the default stream, and each
copy is from or to pinned memory: any of these would block the host or serialise the streams.

One copy engine copies in the order I1 I2 O1 I3 O2 ...: a copy out is deferred until the next copy
in was issued, unless that one needs its slot or nothing follows, since the copy in would otherwise
wait behind it for the chunk's kernel.

Runs in its own process: a sticky error leaves the context unusable (DeviceFault), and the process
must end by `os._exit`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.devices.base import DeviceFault, DeviceJob, IterativeJob, StageExecutor
from hetsched.devices.cuda.chunk_flight import ChunkFlight, EventPool
from hetsched.devices.cuda.clock import DeviceClock
from hetsched.devices.cuda.faults import translated
from hetsched.devices.cuda.iterating.cuda_stages import CudaStages
from hetsched.devices.cuda.iterating.piece_pipeline import StageStreams
from hetsched.devices.cuda.job import CudaJob, copy_to_device, copy_to_host
from hetsched.devices.cuda.memory.device_memory import DeviceMemory
from hetsched.devices.cuda.memory.pinned_memory import SLICE_BYTES, Pins, Staging, default_quota
from hetsched.devices.cuda.preparation import JobPreparer
from hetsched.devices.cuda.probe import budget, reserve
from hetsched.devices.cuda.runtime import Runtime, open_cupy
from hetsched.errors import InternalError
from hetsched.paths import cache_dir
from hetsched.workload.protocol import KernelArrays


def open_device(info: DeviceInfo, config: DeviceConfig) -> CudaDevice:
    """Open the GPU that `probe` found; called in its own process, before CuPy is imported.

    Raises
    ------
    Unavailable
    """
    runtime = open_cupy(info.name, info.details["visible"], str(cache_dir()))
    return CudaDevice(info, runtime, config.memory_bytes())


class CudaDevice:
    """A GPU; see `hetsched.devices.base.Device`.

    Parameters
    ----------
    info : DeviceInfo
        As probed; `describe` adds what the runtime reports.
    limit : int or None, bytes
        Of the device memory that a job may use.
    pinned : int, bytes
        Quota of pinned host memory.
    slice_bytes : int
        Bytes pinned per call.
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
        with translated(info.name, opening=True):
            facts = runtime.facts
            self._h2d, self._compute, self._d2h = (runtime.stream() for _ in range(3))
            self._clock = DeviceClock(runtime, self._h2d)
            self._most_free = runtime.memory().free
        self._has_display = info.details.get("display") == "active" or facts.watchdog
        self._limit = limit
        self._info = msgspec.structs.replace(
            info,
            identity=info.identity or facts.identity,
            memory=budget(facts.free, facts.total, self._has_display, limit),
            engines=facts.engines,
            details={**info.details, "runtime": facts.version},
        )
        quota = default_quota() if pinned is None else pinned
        self._pins = Pins(runtime, quota if facts.register else 0, slice_bytes)
        self._memory = DeviceMemory(runtime)
        self._staging = Staging(self._pins)
        self._preparer = JobPreparer(
            self._memory, self._pins, self._staging, (self._h2d, self._compute)
        )
        self._events = EventPool(runtime)
        self._job: CudaJob | None = None
        self._flights: deque[ChunkFlight] = deque()
        self._in_slot: dict[int, ChunkFlight] = {}
        self._deferred: ChunkFlight | None = None
        self._processor_seconds = 0.0

    def describe(self) -> DeviceInfo:
        return self._info

    def close(self) -> None:
        """Unpin everything, for another device in the same process. Only used by tests."""
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
                self._events.set_clock_base(None)

    def prepare_iterations(self, job: IterativeJob) -> StageExecutor:
        """Make the kernels of all stages, as `IteratingDevice.prepare_iterations`.

        What is kept for jobs without iterations is freed.
        """
        self.prepare(None)
        self.release_memory()
        memory = job.job.memory or self.usable_memory()
        with self._guard():
            streams = StageStreams(self._h2d, self._compute, self._d2h)
            return CudaStages(
                job, self._runtime, streams, self._events, self._pins, memory, self._guard
            )

    def usable_memory(self) -> int:
        with self._guard():
            memory = self._runtime.memory()
            free = memory.free + memory.reusable + self._memory.kept
            return budget(free, memory.total, self._has_display, self._limit)

    def keeps_memory(self) -> bool:
        return self._memory.kept > 0 or self._staging.nbytes > 0

    def is_memory_short(self) -> bool:
        """Return whether little is free, or others took more than the reserve since it opened.

        An allocation that fails in another process can't be seen from here. So once there is one
        with much memory, nothing is kept from it.
        """
        with self._guard():
            memory = self._runtime.memory()
            limit = reserve(memory.total, self._has_display)
            free = memory.free + memory.reusable + self._memory.kept
            self._most_free = max(self._most_free, free)
            return memory.free < limit or self._most_free - free > limit

    def release_memory(self) -> None:
        with self._guard():
            self._drain()
            self._memory.free()
            self._staging.clear()
            self._pins.sweep()

    def forget_host_memory(self) -> None:
        with self._guard():
            self._pins.sweep()

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        with self._guard():
            job = self._current_job()
            job.arrays(chunk.count, slot)  # checks that the slot lies in the block
            previous = self._in_slot.get(slot.index)
            if chunk.barrier or previous is self._deferred:
                self._issue_deferred()
            flight = self._start(chunk, slot)
            sources = [
                flight.source(job, self._preparer, route, previous) for route in job.input_routes
            ]
            self._wait_for_slot(flight, previous)
            self._h2d.record(flight.events.in_start)
            for route, address in zip(job.input_routes, sources, strict=True):
                target = job.address(route.buffer, chunk, slot)
                nbytes = route.buffer.nbytes(chunk.count)
                copy_to_device(self._h2d, target, address, nbytes, self._pins)
            self._h2d.record(flight.events.in_end)
            self._issue_deferred()

    def compute(self, chunk: Chunk, slot: Slot) -> None:
        with self._guard():
            events = self._flight(chunk).events
            inputs, outputs = map(KernelArrays, self._current_job().arrays(chunk.count, slot))
            kernel = self._current_job().kernel
            self._compute.wait(events.in_end)
            self._compute.record(events.compute_start)
            self._compute.launch(lambda: kernel(inputs, outputs))
            self._compute.record(events.compute_end)

    def copy_out(self, chunk: Chunk, slot: Slot) -> None:
        with self._guard():
            job, flight = self._current_job(), self._flight(chunk)
            previous = self._in_slot.get(slot.index)
            if previous is not None and any(r.staged is not None for r in job.output_routes):
                previous.land(job, self._preparer)  # its outputs may still be in these buffers
            self._in_slot[slot.index] = self._deferred = flight
            if self._info.engines != 1 or chunk.last:
                self._issue_deferred()

    def wait(self, chunk: Chunk) -> ChunkTimes:
        with self._guard():
            flight = self._flight(chunk)
            if flight is self._deferred:
                self._issue_deferred()
            flight.land(self._current_job(), self._preparer)
            times = flight.times(self._clock)
            self._flights.remove(flight)
            self._clock.follow(flight.events.in_start)
            self._events.set_clock_base(flight.events)
            before, self._processor_seconds = self._processor_seconds, time.process_time()
            overhead = self._processor_seconds - before
            return msgspec.structs.replace(times, host_overhead=overhead)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Translate errors; after a sticky one every call fails."""
        if self._fault:
            raise DeviceFault(self._fault)
        try:
            with translated(self._name):
                yield
        except DeviceFault as fault:
            self._fault = str(fault)
            raise

    def _current_job(self) -> CudaJob:
        if self._job is None:
            raise InternalError(f"{self._name}: got a chunk before any job was prepared")
        return self._job

    def _start(self, chunk: Chunk, slot: Slot) -> ChunkFlight:
        if not self._flights:
            # The process does nothing else, so its processor time is the host overhead.
            self._processor_seconds = time.process_time()
            if self._clock.refresh():
                self._events.set_clock_base(None)
        flight = ChunkFlight(chunk, slot, self._events.take())
        self._flights.append(flight)
        return flight

    def _flight(self, chunk: Chunk) -> ChunkFlight:
        for flight in self._flights:
            if flight.chunk.id == chunk.id:
                return flight
        raise InternalError(f"{self._name}: chunk {chunk.id} was not copied in")

    def _wait_for_slot(self, flight: ChunkFlight, previous: ChunkFlight | None) -> None:
        """Make the copy in wait until its slot is free, or after a barrier until all slots are."""
        if previous is not None and not previous.has_landed:
            self._h2d.wait(previous.events.out_end)
        if flight.chunk.barrier and len(self._flights) > 1:
            self._h2d.wait(self._flights[-2].events.out_end)

    def _issue_deferred(self) -> None:
        """Start the copy out that was deferred, if any."""
        flight, self._deferred = self._deferred, None
        if flight is None:
            return
        job, chunk = self._current_job(), flight.chunk
        targets = [flight.target(job, self._preparer, route) for route in job.output_routes]
        self._d2h.wait(flight.events.compute_end)
        self._d2h.record(flight.events.out_start)
        for route, address in zip(job.output_routes, targets, strict=True):
            source = job.address(route.buffer, chunk, flight.slot)
            nbytes = route.buffer.nbytes(chunk.count)
            copy_to_host(self._d2h, address, source, nbytes, self._pins)
        self._d2h.record(flight.events.out_end)

    def _drain(self) -> None:
        """Wait until all streams are idle, and drop the chunks that were never waited for."""
        self._issue_deferred()
        self._runtime.synchronize()
        for flight in self._flights:
            self._events.give_back(flight.events)
        self._flights.clear()
        self._in_slot.clear()
