"""Handling of the commands to one open device; answers are sent as events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.device_process import filling, verification
from hetsched.device_process.attachments import Attachments
from hetsched.device_process.failures import error_record
from hetsched.device_process.held_job import (
    ColdKernels,
    HeldJob,
    build_pipeline,
    device_job,
)
from hetsched.device_process.held_jobs import HeldJobs
from hetsched.device_process.memory_upkeep import MemoryUpkeep
from hetsched.device_process.shared_tails import DeviceTail, SharedTails
from hetsched.devices.base import Device
from hetsched.plans.shared_tail import TAIL_CHUNK_ID
from hetsched.transport.device_messages import (
    Check,
    Checked,
    ChunkDone,
    DeviceCommand,
    DeviceNote,
    Event,
    Fence,
    Fenced,
    Fill,
    Filled,
    MemoryReading,
    Prepare,
    Prepared,
    ReadMemory,
    Release,
    Run,
    TailChunksDone,
    TakenChunk,
    VariantFailed,
)
from hetsched.workload import Workload, find

MAX_PAUSE_SECONDS = 0.002
"""Time that the device waits for the next command of a side job that it has just answered, rather
than compute a chunk of another job, which takes up to 0.1 s. The engine needs 0.2 ms."""


@dataclass(frozen=True)
class HostMemoryDetached:
    """What the main thread orders after it has detached segments. It belongs to no job."""

    job: int = 0


ThreadCommand = DeviceCommand | HostMemoryDetached
"""What a device's thread is ordered to do."""


class CommandHandler:
    """The handler of one device's commands, with the jobs that it holds.

    Parameters
    ----------
    index : int
        Of the device within the process.
    tails : SharedTails, optional
        The process's; None: no other device shares one.
    upkeep : MemoryUpkeep, optional
        Of what the device keeps between jobs.
    """

    def __init__(
        self,
        index: int,
        device: Device,
        info: DeviceInfo,
        attachments: Attachments,
        send: Callable[[Event], None],
        tails: SharedTails | None = None,
        upkeep: MemoryUpkeep | None = None,
    ) -> None:
        self._index = index
        self._device = device
        self._info = info
        self._attachments = attachments
        self._send = send
        self._tails = SharedTails() if tails is None else tails
        self._jobs = HeldJobs(device, info)
        self._upkeep = MemoryUpkeep(device) if upkeep is None else upkeep
        self._paused_for: HeldJob | None = None
        self._pause_ends = 0.0
        self._workloads: dict[str, Workload] = {}
        self._cold_kernels = ColdKernels()

    @property
    def next_job(self) -> HeldJob | None:
        """The job that advances next; None if no job has work."""
        return self._jobs.next_job

    @property
    def pause_seconds(self) -> float:
        """Seconds to wait for a side job's next command before another job advances; mostly 0."""
        if self._paused_for is None:
            return 0.0
        return max(0.0, self._pause_ends - time.monotonic())

    @property
    def seconds_to_upkeep(self) -> float | None:
        """Seconds after which `maintain` is due if no command arrives; None: never."""
        if self._jobs.is_empty:
            return self._upkeep.seconds_to_check(time.monotonic())
        self._upkeep.on_busy()
        return None

    def maintain(self) -> None:
        """Release what the idle device keeps, if it is time. Raises DeviceFault."""
        if self._upkeep.check(time.monotonic()):
            self._report_memory(released=True)

    def step(self, job: HeldJob) -> None:
        """Advance `job` by a chunk or a block. Raises as `HeldJobs.step`."""
        self._paused_for = None
        self._jobs.step(job)

    def handle(self, command: ThreadCommand) -> None:
        """Handle one command. Raises any error of the job or the device."""
        self._paused_for = None
        match command:
            case Prepare():
                self._prepare(command)
            case Run():
                self._run(command)
            case Fill():
                job = self._jobs.require(command.job)
                job.tasks.append(self._filling(job, command))
            case Check():
                job = self._jobs.require(command.job)
                job.tasks.append(self._checking(job, command))
            case Release():
                self._release(command)
            case Fence():
                self._release(command)
                self._send(Fenced(command.job, self._index))
            case ReadMemory():
                self._report_memory()
            case HostMemoryDetached():
                self._upkeep.forget_host_memory()

    def _report_memory(self, *, released: bool = False) -> None:
        usable = self._upkeep.usable_memory()
        nbytes = (self._info.memory or 0) if usable is None else usable
        self._send(MemoryReading(self._index, nbytes, released))

    def _prepare(self, command: Prepare) -> None:
        self._upkeep.on_busy()
        self._jobs.make_room(command.job)
        workload = self._workload(command.workload)
        params = msgspec.json.decode(command.params, type=workload.Params)
        specs = workload.arrays(params)
        arrays = self._attachments.host_arrays(command.job, command.arrays, specs)
        description = device_job(
            command,
            self._info,
            workload,
            params,
            arrays,
            self._note_sender(command),
            self._failed_variant_sender(command),
        )
        self._jobs.prepare(description)
        tail = self._tail(command)
        on_done = self._chunk_reporter(command, tail)
        pipeline = build_pipeline(self._device, self._info, command, description, on_done)
        job = HeldJob(
            command.job,
            command.side,
            workload,
            params,
            arrays,
            description,
            pipeline,
            tail=tail,
        )
        self._jobs.add(job)
        if command.answer:
            self._send(Prepared(command.job, self._index))
            self._pause_for(job)

    def _pause_for(self, job: HeldJob) -> None:
        """Expect the next command of `job`, if it is a side job."""
        if job.is_side:
            self._paused_for = job
            self._pause_ends = time.monotonic() + MAX_PAUSE_SECONDS

    def _note_sender(self, command: Prepare) -> Callable[[str], None]:
        return lambda text: self._send(DeviceNote(command.job, self._index, text))

    def _failed_variant_sender(self, command: Prepare) -> Callable[[str, Exception], None]:
        def send(variant: str, error: Exception) -> None:
            record = error_record(error)
            self._send(VariantFailed(command.job, self._index, variant, record))

        return send

    def _tail(self, command: Prepare) -> DeviceTail | None:
        """Return the device's access to the tail of the job, if it has one."""
        if command.tail is None:
            return None

        def report(chunks: tuple[TakenChunk, ...], has_left: bool) -> None:
            self._send(TailChunksDone(command.job, self._index, chunks, has_left))

        return self._tails.join(command.job, command.tail, report)

    def _chunk_reporter(
        self, command: Prepare, tail: DeviceTail | None
    ) -> Callable[[Chunk, ChunkTimes], None]:
        def report(chunk: Chunk, times: ChunkTimes) -> None:
            if self._cold_kernels.is_first_chunk(command, times.kernel):
                times = msgspec.structs.replace(times, cold=True)
            if chunk.id == TAIL_CHUNK_ID and tail is not None:
                tail.finish(chunk, msgspec.structs.replace(times, taken=True))
            else:
                self._send(ChunkDone(command.job, self._index, chunk.id, times))

        return report

    def _run(self, command: Run) -> None:
        """Add the chunks; drop them if the job failed here, which was already reported."""
        job = self._jobs.get(command.job)
        if job is not None:
            job.pipeline.add(command.chunks)
            if command.opens_tail and job.tail is not None:
                job.tail.is_open = True

    def _filling(self, job: HeldJob, command: Fill) -> Iterator[None]:
        inputs, outputs = job.arrays
        first, count = command.first, command.count
        if command.poison:
            yield from filling.poison(outputs[command.array], first, count)
        else:
            array = inputs[command.array]
            yield from filling.generate(
                job.workload, job.params, array, first, count, command.seed
            )
        self._send(Filled(command.job, self._index))
        self._pause_for(job)

    def _checking(self, job: HeldJob, command: Check) -> Iterator[None]:
        result = yield from verification.verify_units(
            job.workload,
            job.params,
            job.arrays,
            command.first,
            command.count,
            command.samples,
            command.seed,
        )
        self._send(
            Checked(
                command.job,
                self._index,
                result.worst,
                result.unit,
                result.max_error,
                result.sample_error,
            )
        )

    def _release(self, command: Release | Fence) -> None:
        self._jobs.release(command.job)
        self._attachments.forget_job(command.job)
        if self._upkeep.is_needed and self._jobs.is_empty:
            self._report_memory()  # the next plan need not wait for it

    def _workload(self, reference: str) -> Workload:
        if reference not in self._workloads:
            self._workloads[reference] = find(reference)
        return self._workloads[reference]
