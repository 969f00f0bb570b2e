"""Handling of the commands to one open device; answers are sent as events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.device_process import filling, verification
from hetsched.device_process.attachments import Attachments
from hetsched.device_process.current_job import CurrentJob
from hetsched.device_process.held_job import (
    ColdKernels,
    HeldJob,
    build_pipeline,
    device_job,
)
from hetsched.device_process.iterating.epoch_runner import EpochRunner
from hetsched.device_process.iterating.iterative_run import IterativeRun, prepare_run
from hetsched.device_process.known_workloads import KnownWorkloads
from hetsched.device_process.memory_upkeep import MemoryUpkeep
from hetsched.device_process.reports.failures import error_record
from hetsched.device_process.reports.gathered_reports import GatheredReports
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
    OwnChunk,
    Prepare,
    Prepared,
    Release,
    Run,
    TailChunksDone,
    TakenChunk,
    VariantFailed,
)
from hetsched.transport.iterations.messages import Iterate
from hetsched.workload import Iterative, Workload
from hetsched.workload.sources import check_sources, note_sources


@dataclass(frozen=True)
class HostMemoryDetached:
    """What the main thread orders after it has detached segments. It belongs to no job."""

    job: int = 0


ThreadCommand = DeviceCommand | HostMemoryDetached
"""What a device's thread is ordered to do."""


class CommandHandler:
    """The handler of one device's commands, with the job that it is prepared for.

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
        self._current = CurrentJob(device, info.name)
        self._upkeep = MemoryUpkeep(device) if upkeep is None else upkeep
        self._workloads = KnownWorkloads(info.kind)
        self._cold_kernels = ColdKernels()

    @property
    def busy_job(self) -> HeldJob | None:
        """The job that the device is prepared for; None if it has no work for it."""
        job = self._current.job
        return job if job is not None and job.is_busy else None

    @property
    def seconds_to_upkeep(self) -> float | None:
        """Seconds after which `maintain` is due if no command arrives; None: never."""
        if self._current.job is None:
            return self._upkeep.seconds_to_check(time.monotonic())
        self._upkeep.on_busy()
        return None

    def maintain(self) -> None:
        """Release what the idle device keeps, if it is time. Raises DeviceFault."""
        if self._upkeep.check(time.monotonic()):
            self._report_memory(released=True)

    def step(self) -> None:
        """Advance the job by a chunk or a block. Raises as `HeldJob.step`."""
        self._current.step()

    def handle(self, command: ThreadCommand) -> None:
        """Handle one command. Raises any error of the job or the device."""
        match command:
            case Prepare():
                self._prepare(command)
            case Run():
                self._run(command)
            case Fill():
                job = self._current.require(command.job)
                job.tasks.append(self._filling(job, command))
            case Iterate():
                job = self._current.require(command.job)
                assert job.run is not None, "the engine iterates iterative jobs only"
                job.tasks.append(EpochRunner(job.run, command, self._send).steps())
            case Check():
                job = self._current.require(command.job)
                job.tasks.append(self._checking(job, command))
            case Release():
                self._release(command)
            case Fence():
                self._release(command)
                self._send(Fenced(command.job, self._index))
            case HostMemoryDetached():
                self._upkeep.forget_host_memory()

    def _report_memory(self, *, released: bool = False) -> None:
        usable = self._upkeep.usable_memory()
        nbytes = (self._info.memory or 0) if usable is None else usable
        self._send(MemoryReading(self._index, nbytes, released))

    def _prepare(self, command: Prepare) -> None:
        self._upkeep.on_busy()
        self._current.drop()
        known_workload = self._workloads.get(command.workload, command.params)
        check_sources(command.workload, command.source)
        workload, specs = known_workload.workload, known_workload.specs
        names = {spec.name for spec in specs} if isinstance(workload, Iterative) else None
        stored = [array for array in command.arrays if names is None or array.array in names]
        arrays = self._attachments.host_arrays(command.job, stored, specs)
        description = device_job(
            command,
            self._info,
            known_workload,
            arrays,
            self._note_sender(command),
            self._failed_variant_sender(command),
        )
        run: IterativeRun | None = None
        if isinstance(workload, Iterative):
            homes = {a.array: self._attachments.whole_array(a) for a in command.arrays}
            run = prepare_run(self._device, self._info.name, description, homes)
        else:
            self._device.prepare(description)
        note_sources(command.workload)  # kernels have been loaded
        tail = self._tail(command)
        on_done = self._chunk_reporter(command, tail)
        pipeline = build_pipeline(self._device, self._info, command, description, on_done)
        self._current.job = HeldJob(
            command.job, workload, known_workload.params, arrays, pipeline, tail=tail, run=run
        )
        if command.answer:
            self._send(Prepared(command.job, self._index))

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

        def report(
            own: tuple[OwnChunk, ...], chunks: tuple[TakenChunk, ...], has_left: bool
        ) -> None:
            self._send(TailChunksDone(command.job, self._index, chunks, has_left, own))

        return self._tails.join(command.job, command.tail, report)

    def _chunk_reporter(
        self, command: Prepare, tail: DeviceTail | None
    ) -> Callable[[Chunk, ChunkTimes], None]:
        gathers = command.gathers and tail is None  # a tail gathers reports itself, once open
        gathered = self._gathered_reports(command) if gathers else None

        def report(chunk: Chunk, times: ChunkTimes) -> None:
            if self._cold_kernels.is_first_chunk(command, times.kernel):
                times = msgspec.structs.replace(times, cold=True)
            if chunk.id == TAIL_CHUNK_ID and tail is not None:
                tail.finish(chunk, msgspec.structs.replace(times, taken=True))
            elif tail is not None and tail.is_open:
                tail.finish_own(chunk, times)
            elif gathered is not None:
                gathered.finish(chunk.id, times)
            else:
                self._send(ChunkDone(command.job, self._index, chunk.id, times))

        return report

    def _gathered_reports(self, command: Prepare) -> GatheredReports:
        def report(done: tuple[OwnChunk, ...]) -> None:
            if len(done) == 1:
                self._send(ChunkDone(command.job, self._index, done[0].chunk, done[0].times))
            else:
                self._send(TailChunksDone(command.job, self._index, (), own=done))

        def has_more() -> bool:
            job = self._current.get(command.job)
            return job is not None and job.pipeline.busy

        return GatheredReports(report, has_more)

    def _run(self, command: Run) -> None:
        """Add the chunks; drop them if the job failed here, which was already reported."""
        job = self._current.get(command.job)
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

    def _checking(self, job: HeldJob, command: Check) -> Iterator[None]:
        workload, first, count = job.workload, command.first, command.count
        if isinstance(workload, Iterative):
            result = yield from verification.verify_rows(
                workload, job.params, job.arrays, first, count, command.seed
            )
        else:
            assert isinstance(workload, Workload), "there are no other kinds"
            result = yield from verification.verify_units(
                workload, job.params, job.arrays, first, count, command.samples, command.seed
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
        self._current.release(command.job)
        self._attachments.forget_job(command.job)
        if self._upkeep.is_needed and self._current.job is None:
            self._report_memory()  # the next plan need not wait for it
