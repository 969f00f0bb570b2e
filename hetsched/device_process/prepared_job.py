"""A job that a device holds, from Prepare to Release: its arrays, its chunks and its tasks."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.device_process import fill_and_check
from hetsched.device_process.arrays import Attachments, HostArrays
from hetsched.device_process.epochs import EpochRunner, IterativeRun, prepare_run
from hetsched.device_process.pipeline import ChunkReports, Pipeline
from hetsched.device_process.tails import DeviceTail, TailCounter
from hetsched.devices.base import Device, DeviceFault, DeviceJob, DeviceOutOfMemory
from hetsched.errors import (
    CantCreate,
    ErrorRecord,
    HetschedError,
    InternalError,
    IOFailure,
    JobFailed,
    UsageError,
    encodable,
    text_of,
    to_record,
)
from hetsched.memory import MemoryDemand
from hetsched.paths import cache_dir
from hetsched.plans.shared_tail import TAIL_CHUNK_ID
from hetsched.plans.slot_allocation import SlotAllocator, slot_bytes
from hetsched.plug_in_errors import plug_in_error
from hetsched.transport.device_messages import (
    Check,
    Checked,
    CommandFailed,
    DeviceNote,
    Event,
    FailureCause,
    Fill,
    Filled,
    Iterate,
    Prepare,
    Prepared,
    Run,
    VariantFailed,
)
from hetsched.workload import ArraySpec, BaseWorkload, Iterative, Workload, find
from hetsched.workload.conversion import decode_params
from hetsched.workload.registry import check_sources, note_sources

MAX_KERNELS = 1000
"""Kernels whose first chunk is remembered."""
MAX_SAID = 300
"""Characters of what a plug-in says; more is cut off. Arbitrary."""

Work = Run | Fill | Iterate | Check


MAX_MESSAGE_CHARACTERS = 2000
"""Maximum length of an error's text: a message must fit into the socket."""


def command_failed(
    attempt: int,
    error: BaseException,
    chunk: int | None = None,
    *,
    has_link: bool = False,
) -> CommandFailed:
    """Return the event that reports `error`."""
    return CommandFailed(attempt, failure_cause(error, has_link), error_record(error), chunk)


def error_record(error: BaseException) -> ErrorRecord:
    """Return `error` as a record of bounded length."""
    record = to_record(as_hetsched_error(error))
    message, frames = record.message, record.frames
    return ErrorRecord(
        record.code, message[:MAX_MESSAGE_CHARACTERS], frames[-MAX_MESSAGE_CHARACTERS:]
    )


def failure_cause(error: BaseException, has_link: bool) -> FailureCause:
    """Return the class of `error`; see `FailureCause`.

    A MemoryError of a kernel that runs in host memory is the kernel's: a smaller plan won't help.
    """
    if isinstance(error, DeviceFault):
        return "fault"
    if isinstance(error, DeviceOutOfMemory) or (isinstance(error, MemoryError) and has_link):
        return "memory"
    if isinstance(error, IOFailure | CantCreate):
        return "io"
    return "variant" if isinstance(error, UsageError) else "kernel"


def as_hetsched_error(error: BaseException) -> HetschedError:
    """Return `error` as one of ours: an error of a kernel is the job's failure, not our bug."""
    if isinstance(error, DeviceOutOfMemory | DeviceFault):
        return JobFailed(text_of(error))
    return plug_in_error("the kernel", error)


class StepFailed(Exception):
    """A job can't advance, with the reason as ``__cause__``; no chunk failed."""


class WarmKernels:
    """The kernels that have computed a chunk in this process: the first one loads code."""

    def __init__(self) -> None:
        self._warm: set[tuple[str, bytes, str]] = set()

    def is_first_chunk(self, command: Prepare, kernel_number: int) -> bool:
        """Return whether this kernel has no reported chunk yet. `kernel_number`: of the chunk."""
        variant = (command.variant, *command.rivals)[kernel_number]
        kernel = (command.workload, command.params, variant)
        if kernel in self._warm:
            return False
        if len(self._warm) >= MAX_KERNELS:
            self._warm.clear()
        self._warm.add(kernel)
        return True


@dataclass(frozen=True)
class Described:
    """A workload with its parameters, its arrays and its demand, monotone, on a device."""

    workload: BaseWorkload
    params: Any
    specs: Sequence[ArraySpec]
    demand: MemoryDemand


class PreparedJob:
    """One attempt at a job on one device; advances a step at a time, on the loop's thread.

    Parameters
    ----------
    command : Prepare
        Carried out by the first steps.
    counter : TailCounter or None
        Of the tails that the device shares with others.

    Attributes
    ----------
    device : Device
        Computes this job only, until `drop`.
    """

    def __init__(
        self,
        command: Prepare,
        device: Device,
        info: DeviceInfo,
        attachments: Attachments,
        send: Callable[[Event], None],
        warm_kernels: WarmKernels,
        counter: TailCounter | None,
    ) -> None:
        self.device = device
        self.attempt = command.attempt
        self._command = command
        self._info = info
        self._attachments = attachments
        self._send = send
        self._warm_kernels = warm_kernels
        self._tail: DeviceTail | None = None
        if command.tail is not None:
            if counter is None:
                raise InternalError(f"{info.name} shares no tails")
            self._tail = DeviceTail(counter, command.attempt, command.tail)
        # In a race, the last report shows which variant has ended the process.
        gathers = not info.link and not command.rivals
        self._reports = ChunkReports(command.attempt, send, gathers=gathers)
        self._pipeline: Pipeline | None = None
        self._run: IterativeRun | None = None
        self._waiting: list[Work] = []
        """What has been ordered before the job was prepared."""
        self._tasks: deque[Iterator[None]] = deque([self._preparing()])
        """Preparing, filling, checking and epochs, after the chunks; each step is a block."""

    @property
    def is_prepared(self) -> bool:
        return self._pipeline is not None

    @property
    def is_busy(self) -> bool:
        """Whether it has chunks, may take some, or has tasks."""
        if self._tasks or (self._pipeline is not None and self._pipeline.busy):
            return True
        return self._tail is not None and self._tail.is_open

    @property
    def expects_more(self) -> bool:
        """Whether further chunks are announced and could start before the oldest finishes."""
        return self._pipeline is not None and self._pipeline.expects_more

    def order(self, work: Work) -> None:
        """Add work, after what was ordered before."""
        if self._pipeline is None:
            self._waiting.append(work)
        else:
            self._add(self._pipeline, work)

    def step(self) -> None:
        """Advance by a chunk, or by one block of a task.

        Raises
        ------
        ChunkFailed, DeviceFault
        StepFailed
            All tasks are dropped.
        """
        if self._pipeline is not None and self._pipeline.busy:
            self._pipeline.step()
        elif self._tail is not None and self._tail.is_open:
            self._take_chunk(self._tail)
        else:
            self._step_task()

    def report(self) -> None:
        """Report all finished chunks."""
        self._reports.flush()

    def drop(self) -> None:
        """Drop queued chunks, finish those in flight, and give up the arrays. DeviceFault."""
        self._tasks.clear()  # they refer to the job: break the cycle, so that arrays are freed now
        self._waiting.clear()
        if self._pipeline is not None:
            self._pipeline.drain()
        self.device.prepare(None)

    def _step_task(self) -> None:
        try:
            next(self._tasks[0])
        except StopIteration:
            self._tasks.popleft()
        except BaseException as error:  # also what only a plug-in would raise
            self._tasks.clear()
            raise StepFailed(self.attempt) from error

    # ---- preparing

    def _preparing(self) -> Iterator[None]:
        command = self._command
        for key in {stored.key: None for stored in command.arrays}:
            yield from self._attachments.populate(key)
        described = _described(command.workload, command.params, self._info.kind)
        check_sources(command.workload, command.source)
        workload = described.workload
        stored = command.arrays
        if isinstance(workload, Iterative):  # others are in memory as its state and partials
            names = {spec.name for spec in described.specs}
            stored = tuple(array for array in stored if array.array in names)
        arrays = self._attachments.host_arrays(stored, described.specs)
        job = self._device_job(described, arrays)
        if isinstance(workload, Iterative):
            homes = {a.array: self._attachments.whole_array(a) for a in command.arrays}
            self._run = prepare_run(self.device, self._info.name, job, homes)
        else:
            self.device.prepare(job)
        note_sources(command.workload)  # kernels have been loaded
        self._described, self._arrays = described, arrays
        self._pipeline = pipeline = self._make_pipeline(job)
        if command.answer:
            self._send(Prepared(self.attempt))
        for work in self._waiting:
            self._add(pipeline, work)
        self._waiting.clear()

    def _device_job(self, described: Described, arrays: HostArrays) -> DeviceJob:
        command, info = self._command, self._info
        inputs, outputs = arrays
        return DeviceJob(
            workload=described.workload,
            params=described.params,
            variant=command.variant,
            inputs=inputs,
            outputs=outputs,
            chunk=command.chunk,
            demand=described.demand,
            memory=command.memory,
            slots=command.slots if info.link else 1,
            threads=info.threads,
            cache=_cache_folder(),
            say=self._say,
            rivals=command.rivals,
            reject=self._reject,
        )

    def _say(self, text: object) -> None:
        """Report what a plug-in says: anything, of any length."""
        self._send(DeviceNote(self.attempt, encodable(str(text)[:MAX_SAID])))

    def _reject(self, variant: str, error: Exception) -> None:
        self._send(VariantFailed(self.attempt, variant, error_record(error)))

    def _make_pipeline(self, job: DeviceJob) -> Pipeline:
        """Return a pipeline; without slots for an iterative job, which has no chunks."""
        command, info = self._command, self._info
        slots = None
        if info.link and not isinstance(job.workload, Iterative):
            slots = SlotAllocator(
                lambda units: slot_bytes(job.demand, units),
                command.memory,
                job.slots,
                command.ring,
                job.chunk,
                command.sizes,
            )
        depth = min(job.slots + 1, command.window) if info.link else 1
        return Pipeline(self.device, slots, depth, self._on_done)

    # ---- work

    def _add(self, pipeline: Pipeline, work: Work) -> None:
        match work:
            case Run():
                pipeline.add(work.chunks)
                self._reports.added(pipeline.pending)
                if work.opens_tail and self._tail is not None:
                    self._tail.is_open = True
            case Fill():
                self._tasks.append(self._filling(work))
            case Check():
                self._tasks.append(self._checking(work))
            case Iterate():
                assert self._run is not None, "the engine iterates iterative jobs only"
                self._tasks.append(EpochRunner(self._run, work, self._send).steps())

    def _take_chunk(self, tail: DeviceTail) -> None:
        """Start the next chunk of the tail.

        Only when it can start, so that no chunk waits here while another core is idle.
        """
        assert self._pipeline is not None, "a Run has opened the tail"
        chunk = tail.take()
        if chunk is None:
            self._reports.flush(has_left=True)
        else:
            self._pipeline.add([chunk])
            self._pipeline.step()

    def _on_done(self, chunk: Chunk, times: ChunkTimes) -> None:
        assert self._pipeline is not None, "it has computed a chunk"
        if self._warm_kernels.is_first_chunk(self._command, times.kernel):
            times = msgspec.structs.replace(times, cold=True)
        is_taken = chunk.id == TAIL_CHUNK_ID
        if is_taken:
            times = msgspec.structs.replace(times, taken=True)
        tail = self._tail
        has_tail = tail is not None and tail.is_open
        self._reports.finish(chunk, times, self._pipeline.pending, has_tail=has_tail)
        # At once: another job may come before the next chunk would be taken.
        if is_taken and tail is not None and tail.leave_if_empty():
            self._reports.flush(has_left=True)

    def _filling(self, command: Fill) -> Iterator[None]:
        inputs, outputs = self._arrays
        first, count = command.first, command.count
        if command.poison:
            yield from fill_and_check.poison(outputs[command.array], first, count)
        else:
            workload, params = self._described.workload, self._described.params
            array = inputs[command.array]
            yield from fill_and_check.generate(workload, params, array, first, count, command.seed)
        self._send(Filled(self.attempt))

    def _checking(self, command: Check) -> Iterator[None]:
        workload, params = self._described.workload, self._described.params
        first, count, seed = command.first, command.count, command.seed
        if isinstance(workload, Iterative):
            result = yield from fill_and_check.verify_rows(
                workload, params, self._arrays, first, count, seed
            )
        else:
            assert isinstance(workload, Workload), "there are no other kinds"
            result = yield from fill_and_check.verify_units(
                workload, params, self._arrays, first, count, command.samples, seed
            )
        self._send(
            Checked(self.attempt, result.worst, result.unit, result.max_error, result.sample_error)
        )


@functools.lru_cache(maxsize=16)
def _described(reference: str, params: bytes, kind: str) -> Described:
    """Return the workload `reference` with parameters as JSON; `kind`: of the device.

    Raises UsageError (there is no such workload), msgspec.MsgspecError (other parameters).
    """
    workload = find(reference)
    decoded = decode_params(workload, params)
    demand = workload.demand(decoded, kind).monotone()
    return Described(workload, decoded, workload.arrays(decoded), demand)


@functools.cache
def _cache_folder() -> str:
    """Return the cache folder, created once per process: checking each time costs 0.1 ms."""
    folder = cache_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)
