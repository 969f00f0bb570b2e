"""An emulated device with a link: its own memory behind copy engines, on either clock.

It computes with the CPU variant that the job names, on real bytes in a buffer of the configured
size. One copy engine copies in the order I1 I2 O1 I3 O2 ...: an output is deferred until the next
input was issued, unless that input needs the output's slot, or nothing follows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from hetsched.config import DeviceConfig
from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.devices.base import Device, DeviceJob, IterativeJob, StageExecutor
from hetsched.devices.cpu.device import CpuDevice
from hetsched.devices.cpu.stages import HostStages, StageClock
from hetsched.devices.emulated.costs import ModelledCosts
from hetsched.devices.emulated.loaded_job import JobLoader, LoadedJob
from hetsched.devices.emulated.real_clock import RealClock, precise_sleep
from hetsched.devices.emulated.stage_clock import stage_clock
from hetsched.devices.emulated.streams import Operation
from hetsched.devices.emulated.virtual_clock import VirtualClock, Work
from hetsched.errors import InternalError

MAX_BACK_TO_BACK_SECONDS = 500e-6
"""A computation that begins so soon after the previous one's modelled end counts from that end:
oversleeping and sending are artefacts of the emulation and must not add up. Arbitrary."""


def open_device(info: DeviceInfo, config: DeviceConfig) -> Device:
    """Open the emulated device that `config` describes; called on the thread that drives it."""
    virtual = config.clock == "virtual"
    if not virtual:
        precise_sleep()
    if not config.link:
        return CpuDevice(info, VirtualCoreClock(config) if virtual else RealCoreClock(config))
    clock = VirtualClock if virtual else RealClock
    return EmulatedDevice(info, config, clock(config.engines, config.duplex))


class OperationClock(Protocol):
    """Runs operations in virtual or in real time."""

    def reset(self) -> None: ...

    def earliest_start(self, after_wait: bool) -> float: ...

    def issue(self, operation: Operation, work: Work) -> None: ...

    def wait(self, operation: Operation) -> None: ...

    def close(self) -> None: ...


@dataclass(eq=False)
class _EmulatedChunk:
    """A chunk whose copy in was issued."""

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

    def __init__(self, info: DeviceInfo, config: DeviceConfig, clock: OperationClock) -> None:
        self._info = info
        self._clock = clock
        self._config = config
        self._loader = JobLoader(info.name, config)
        self._loaded: LoadedJob | None = None
        self._chunks: dict[int, _EmulatedChunk] = {}
        self._by_slot: dict[int, _EmulatedChunk] = {}
        self._deferred: Chunk | None = None
        """The chunk whose copy out is deferred."""

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
            self._loaded = self._loader.load(job)

    def prepare_iterations(self, job: IterativeJob) -> StageExecutor:
        """Make the kernels of all stages, as `IteratingDevice.prepare_iterations`."""
        self.prepare(None)
        return HostStages(job, stage_clock(self._config, job))

    def copy_in(self, chunk: Chunk, slot: Slot) -> None:
        job = self._current_job()
        inputs, _ = job.views(slot, chunk.count)
        nbytes = job.layout.nbytes(chunk.count)
        slot_memory = job.memory[slot.offset : slot.offset + nbytes]
        previous = self._by_slot.get(slot.index)
        if self._deferred is not None and previous is self._chunks.get(self._deferred.id):
            self._issue_deferred()
        after_wait = chunk.barrier or any(
            other.overlaps(slot, nbytes)
            for other in self._by_slot.values()
            if other is not previous
        )
        after = self._slot_free(previous)
        work = job.copy_in(chunk, inputs, slot_memory)
        operation = self._issue("h2d", chunk, after, after_wait, work)
        issued = _EmulatedChunk(slot, nbytes, operation)
        self._by_slot[slot.index] = self._chunks[chunk.id] = issued
        self._issue_deferred()

    def compute(self, chunk: Chunk, slot: Slot) -> None:
        job = self._current_job()
        issued = self._chunks[chunk.id]
        inputs, outputs = job.views(slot, chunk.count)
        work = job.compute(inputs, outputs, lambda: _raise_error(issued.copy_in))
        issued.compute = self._issue("compute", chunk, self._input_copied(issued), False, work)

    def copy_out(self, chunk: Chunk, slot: Slot) -> None:
        self._deferred = chunk
        if self._info.engines != 1 or chunk.last:
            self._issue_deferred()

    def wait(self, chunk: Chunk) -> ChunkTimes:
        if self._deferred is not None and self._deferred.id == chunk.id:
            self._issue_deferred()
        issued = self._chunks.pop(chunk.id)
        assert issued.compute is not None and issued.copy_out is not None
        operations = (issued.copy_in, issued.compute, issued.copy_out)
        for operation in reversed(operations):
            self._clock.wait(operation)
        for operation in operations:
            _raise_error(operation)
        return ChunkTimes(
            copy_in=issued.copy_in.span,
            compute=issued.compute.span,
            copy_out=issued.copy_out.span,
            late=sum(operation.late for operation in operations),
            host_overhead=self._current_job().costs.host_overhead(chunk.count),
        )

    # Which operation waits for which. Tests remove each of these waits and must then fail.

    def _slot_free(self, previous: _EmulatedChunk | None) -> list[Operation]:
        return [] if previous is None or previous.copy_out is None else [previous.copy_out]

    def _input_copied(self, issued: _EmulatedChunk) -> list[Operation]:
        return [issued.copy_in]

    def _output_computed(self, issued: _EmulatedChunk) -> list[Operation]:
        return [] if issued.compute is None else [issued.compute]

    def _issue_deferred(self) -> None:
        """Issue the copy out that was deferred, if any."""
        chunk, self._deferred = self._deferred, None
        if chunk is None:
            return
        job = self._current_job()
        issued = self._chunks[chunk.id]
        _, outputs = job.views(issued.slot, chunk.count)
        work = job.copy_out(chunk, outputs, lambda: _raise_error(issued.compute))
        issued.copy_out = self._issue("d2h", chunk, self._output_computed(issued), False, work)

    def _issue(
        self, phase: str, chunk: Chunk, after: list[Operation], after_wait: bool, work: Work
    ) -> Operation:
        seconds = self._current_job().costs.seconds(phase, chunk.id, chunk.count)
        operation = Operation(phase, seconds, after, self._clock.earliest_start(after_wait))
        self._clock.issue(operation, work)
        return operation

    def _drain(self) -> None:
        """Wait until all issued operations have ended, and discard their results."""
        self._issue_deferred()
        for issued in self._chunks.values():
            for operation in (issued.copy_in, issued.compute, issued.copy_out):
                if operation is not None:
                    self._clock.wait(operation)
        self._chunks.clear()

    def _current_job(self) -> LoadedJob:
        if self._loaded is None:
            raise InternalError(f"{self._info.name}: got a chunk before any job was prepared")
        return self._loaded


def _raise_error(operation: Operation | None) -> None:
    if operation is not None and operation.error is not None:
        raise operation.error


# ---- cores, which have no link: computations take modelled time


class _ModelledCoreClock:
    def __init__(self, config: DeviceConfig) -> None:
        self._config = config
        self._costs: ModelledCosts | None = None

    def begin(self, job: DeviceJob | None) -> None:
        self._costs = None if job is None else ModelledCosts(self._config, job)

    def busy_seconds(self) -> float | None:
        return None  # modelled time passes, whatever else uses the core

    def stage_clock(self, job: IterativeJob) -> StageClock:
        return stage_clock(self._config, job)

    def _seconds(self, chunk: Chunk) -> float:
        assert self._costs is not None
        return self._costs.seconds("compute", chunk.id, chunk.count)


class _ModelledCore:
    """An emulated core, which computes one chunk at a time, whichever job it belongs to."""

    def __init__(self) -> None:
        self._end = 0.0

    def compute(self, start: float, seconds: float) -> float:
        """Return the end of a computation that begins at `start` or when the core is free."""
        self._end = max(start, self._end) + seconds
        return self._end


class RealCoreClock(_ModelledCoreClock):
    """A clock that sleeps until the modelled end; work that takes longer is late."""

    _last_end = 0.0

    def __init__(self, config: DeviceConfig, core: _ModelledCore | None = None) -> None:
        super().__init__(config)
        self._core = core or _ModelledCore()

    def now(self) -> float:
        now = time.monotonic()
        is_back_to_back = 0 <= now - self._last_end < MAX_BACK_TO_BACK_SECONDS
        return self._last_end if is_back_to_back else now

    def end_of(self, chunk: Chunk, start: float) -> tuple[float, int]:
        end = self._core.compute(start, self._seconds(chunk))
        remaining = end - time.monotonic()
        if remaining > 0:
            time.sleep(remaining)
        else:
            end = time.monotonic()
        self._last_end = end
        return end, int(remaining < 0)

    def beside(self) -> RealCoreClock:
        return RealCoreClock(self._config, self._core)


class VirtualCoreClock(_ModelledCoreClock):
    """A clock with computed time, which starts at 0 with each job."""

    _now = 0.0

    def begin(self, job: DeviceJob | None) -> None:
        super().begin(job)
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def end_of(self, chunk: Chunk, start: float) -> tuple[float, int]:
        self._now = start + self._seconds(chunk)
        return self._now, 0

    def beside(self) -> VirtualCoreClock:
        raise InternalError("the times of a virtual clock are those of one job")
