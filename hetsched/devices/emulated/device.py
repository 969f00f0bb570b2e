"""An emulated device with a link: memory of its own behind copy engines, on either clock.

It computes with the CPU variant that the job names, on real bytes in a buffer of the configured
size. One copy engine copies in the order I1 I2 O1 I3 O2 ...: an output is held back until the next
input was issued, unless that one needs the output's slot, or nothing follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.devices.base import Device, DeviceJob, DeviceOutOfMemory
from hetsched.devices.cpu.device import CpuDevice, warm
from hetsched.devices.cpu.kernels import CpuKernels
from hetsched.devices.emulated.core import RealPace, VirtualPace
from hetsched.devices.emulated.costs import Costs
from hetsched.devices.emulated.real_clock import RealClock, precise_sleep
from hetsched.devices.emulated.streams import Operation
from hetsched.devices.emulated.virtual_clock import VirtualClock, Work
from hetsched.devices.slots import SlotMap, Views, unit_bytes
from hetsched.errors import InternalError
from hetsched.plans.slot_allocation import aligned
from hetsched.workload import ArraySpec, Kernel


class Clock(Protocol):
    """What makes operations happen."""

    def reset(self) -> None: ...

    def floor(self, behind: bool) -> float: ...

    def issue(self, operation: Operation, work: Work) -> None: ...

    def wait(self, operation: Operation) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Loaded:
    """A job on the device."""

    job: DeviceJob
    kernel: Kernel
    map: SlotMap
    costs: Costs
    residents: Views
    memory: np.ndarray
    """The part of device memory that slots lie in."""


@dataclass(eq=False)
class _Flight:
    """A chunk that was begun."""

    slot: Slot
    nbytes: int
    copy_in: Operation
    compute: Operation | None = None
    copy_out: Operation | None = None

    def overlaps(self, slot: Slot, nbytes: int) -> bool:
        return slot.offset < self.slot.offset + self.nbytes and (
            self.slot.offset < slot.offset + nbytes
        )


class EmulatedDevice:
    """See the module. `close` ends its threads."""

    def __init__(self, info: DeviceInfo, config: DeviceConfig, clock: Clock) -> None:
        self._info = info
        self._config = config
        self._clock = clock
        self._cap = config.memory_bytes() or 0
        self._memory = np.empty(0, np.uint8)
        self._kernels = CpuKernels()
        self._loaded: _Loaded | None = None
        self._flights: dict[int, _Flight] = {}
        self._by_slot: dict[int, _Flight] = {}
        self._held: Chunk | None = None

    def describe(self) -> DeviceInfo:
        return self._info

    def close(self) -> None:
        self.prepare(None)
        self._clock.close()

    def prepare(self, job: DeviceJob | None) -> None:
        self._drain()
        self._loaded = None
        self._by_slot.clear()
        self._clock.reset()
        if job is not None:
            kernel, in_place = self._kernels.get(job)
            self._loaded = self._load(job, kernel, SlotMap(_arrays(job), in_place, job.demand))

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        loaded = self._job()
        inputs, _ = loaded.map.views(loaded.memory, slot, chunk.count)
        nbytes = loaded.map.nbytes(chunk.count)
        claimed = loaded.memory[slot.offset : slot.offset + nbytes]
        before = self._by_slot.get(slot.index)
        if self._held is not None and before is self._flights.get(self._held.id):
            self._release()
        behind = chunk.barrier or any(
            flight.overlaps(slot, nbytes)
            for flight in self._by_slot.values()
            if flight is not before
        )
        after = self._slot_free(before)
        operation = self._issue(
            "h2d", chunk, after, behind, _copies_in(loaded, chunk, inputs, claimed)
        )
        self._by_slot[slot.index] = self._flights[chunk.id] = _Flight(slot, nbytes, operation)
        self._release()

    def compute(self, chunk: Chunk, slot: Slot) -> None:
        loaded = self._job()
        flight = self._flights[chunk.id]
        inputs, outputs = loaded.map.views(loaded.memory, slot, chunk.count)
        names = list(inputs)

        def run(sources: Sequence[np.ndarray]) -> None:
            _raise_error(flight.copy_in)
            given = dict(zip(names, sources, strict=True))
            loaded.kernel({**given, **loaded.residents}, outputs)

        work = Work(list(inputs.values()), list(outputs.values()), run)
        flight.compute = self._issue("compute", chunk, self._input_there(flight), False, work)

    def copy_out(self, chunk: Chunk, slot: Slot) -> None:
        self._held = chunk
        if self._info.engines != 1 or chunk.last:
            self._release()

    def wait(self, chunk: Chunk) -> ChunkTimes:
        if self._held is not None and self._held.id == chunk.id:
            self._release()
        flight = self._flights.pop(chunk.id)
        assert flight.compute is not None and flight.copy_out is not None
        operations = (flight.copy_in, flight.compute, flight.copy_out)
        for operation in reversed(operations):
            self._clock.wait(operation)
        for operation in operations:
            _raise_error(operation)
        return ChunkTimes(
            copy_in=flight.copy_in.span,
            compute=flight.compute.span,
            copy_out=flight.copy_out.span,
            late=sum(operation.late for operation in operations),
            host_overhead=self._job().costs.host_overhead(chunk.count),
        )

    # Which operation comes after which: each of these is dropped in a test, which must be noticed.

    def _slot_free(self, before: _Flight | None) -> list[Operation]:
        return [] if before is None or before.copy_out is None else [before.copy_out]

    def _input_there(self, flight: _Flight) -> list[Operation]:
        return [flight.copy_in]

    def _output_there(self, flight: _Flight) -> list[Operation]:
        return [] if flight.compute is None else [flight.compute]

    def _release(self) -> None:
        """Issue the copy out that was held back, if any."""
        chunk, self._held = self._held, None
        if chunk is None:
            return
        loaded = self._job()
        flight = self._flights[chunk.id]
        _, outputs = loaded.map.views(loaded.memory, flight.slot, chunk.count)
        names = list(outputs)

        def run(sources: Sequence[np.ndarray]) -> None:
            if flight.compute is not None:
                _raise_error(flight.compute)
            for name, values in zip(names, sources, strict=True):
                loaded.job.outputs[name].write(chunk.first, chunk.count, values)

        work = Work(list(outputs.values()), _host_views(loaded.job, chunk), run)
        flight.copy_out = self._issue("d2h", chunk, self._output_there(flight), False, work)

    def _issue(
        self, phase: str, chunk: Chunk, after: list[Operation], behind: bool, work: Work
    ) -> Operation:
        seconds = self._job().costs.seconds(phase, chunk.id, chunk.count)
        operation = Operation(phase, seconds, after, self._clock.floor(behind))
        self._clock.issue(operation, work)
        return operation

    def _load(self, job: DeviceJob, kernel: Kernel, slots: SlotMap) -> _Loaded:
        inputs = [array for array in job.inputs.values() if array.spec.role == "resident"]
        resident = sum(aligned(unit_bytes(array.spec)) for array in inputs)
        shared = job.demand.workspace(job.chunk) if job.demand.work == "max" else 0
        room = job.memory or self._cap - resident - shared
        if resident + shared + room > self._cap or room < slots.nbytes(job.chunk):
            raise DeviceOutOfMemory(
                f"{self._info.name}: {resident} bytes of resident data, {shared} of work area and"
                f" {max(room, slots.nbytes(job.chunk))} for slots; it has {self._cap}"
            )
        self._memory = warm(self._memory, resident + room)
        residents: Views = {}
        at = 0
        for array in inputs:
            spec = array.spec
            raw = self._memory[at : at + unit_bytes(spec)]
            residents[spec.name] = raw.view(spec.dtype).reshape(spec.unit_shape)
            array.read(0, 0, residents[spec.name])
            at += aligned(unit_bytes(spec))
        costs = Costs(self._config, job, slots)
        return _Loaded(job, kernel, slots, costs, residents, self._memory[at : at + room])

    def _drain(self) -> None:
        """Let everything that was issued end; whoever wanted it is gone."""
        self._release()
        for flight in self._flights.values():
            for operation in (flight.copy_in, flight.compute, flight.copy_out):
                if operation is not None:
                    self._clock.wait(operation)
        self._flights.clear()

    def _job(self) -> _Loaded:
        if self._loaded is None:
            raise InternalError(f"{self._info.name}: a chunk before any job")
        return self._loaded


def open_device(info: DeviceInfo, config: DeviceConfig) -> Device:
    """The emulated device that `config` describes; called on the thread that will drive it."""
    virtual = config.clock == "virtual"
    if not virtual:
        precise_sleep()
    if not config.link:
        return CpuDevice(info, VirtualPace(config) if virtual else RealPace(config))
    kind = VirtualClock if virtual else RealClock
    return EmulatedDevice(info, config, kind(config.engines, config.duplex))


def _arrays(job: DeviceJob) -> list[ArraySpec]:
    hosts = [*job.inputs.values(), *job.outputs.values()]
    return list({array.spec.name: array.spec for array in hosts}.values())


def _copies_in(loaded: _Loaded, chunk: Chunk, inputs: Views, claimed: np.ndarray) -> Work:
    """From its start a copy in owns the whole slot, the outputs' part too."""

    def run(sources: Sequence[np.ndarray]) -> None:
        for name, view in inputs.items():
            loaded.job.inputs[name].read(chunk.first, chunk.count, view)

    return Work((), (claimed,), run)


def _host_views(job: DeviceJob, chunk: Chunk) -> list[np.ndarray]:
    views = (array.direct(chunk.first, chunk.count) for array in job.outputs.values())
    return [view for view in views if view is not None]


def _raise_error(operation: Operation) -> None:
    if operation.error is not None:
        raise operation.error
