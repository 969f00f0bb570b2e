"""One device of a device process: takes the commands that concern it, on a thread of its own."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec

from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.device_process import verification
from hetsched.device_process.attachments import Attachments, Hosts
from hetsched.device_process.pipeline import ChunkFailed, Pipeline
from hetsched.devices.base import Device, DeviceFault, DeviceJob, DeviceOutOfMemory
from hetsched.errors import (
    CantCreate,
    ErrorRecord,
    HetschedError,
    InternalError,
    IOFailure,
    JobFailed,
    UsageError,
    to_record,
)
from hetsched.paths import cache_dir
from hetsched.plans.slot_allocation import SlotAllocator, slot_bytes
from hetsched.transport.device_messages import (
    Check,
    Checked,
    ChunkDone,
    CommandFailed,
    DeviceCommand,
    DeviceNote,
    Event,
    FailureCause,
    Fence,
    Fenced,
    Fill,
    Filled,
    Prepare,
    Prepared,
    Release,
    Run,
)
from hetsched.workload import Workload, find

FAULT_EXIT = 17
"""The exit status of a process whose device is unusable in it."""
MOST_SAID = 2000
"""Characters of an error that are passed on: a message must fit into the socket."""
MOST_KERNELS = 1000
"""Kernels whose first chunk is remembered. Arbitrary."""
PATIENCE = 2.0
"""Seconds that a device on a virtual clock waits for chunks that are on their way: its times must
not depend on when messages arrive. Arbitrary; only a cancelled run waits so long."""


@dataclass(frozen=True)
class _Current:
    """The job that the device was prepared for."""

    job: int
    workload: Workload
    params: Any
    hosts: Hosts
    pipeline: Pipeline


class DeviceThread(threading.Thread):
    """Opens the device, then serves `commands` until None comes.

    Parameters
    ----------
    index : int
        Of the device within the process.
    open_device : callable
        Opens the device; called on this thread.
    opened : callable
        Called with what the device says that it is, or why it can't be opened.
    """

    def __init__(
        self,
        index: int,
        info: DeviceInfo,
        open_device: Callable[[DeviceInfo], Device],
        attachments: Attachments,
        send: Callable[[Event], None],
        opened: Callable[[int, DeviceInfo | HetschedError], None],
    ) -> None:
        super().__init__(name=info.name, daemon=True)
        self.commands: SimpleQueue[DeviceCommand | None] = SimpleQueue()
        self._index = index
        self._info = info
        self._open_device = open_device
        self._attachments = attachments
        self._send = send
        self._opened = opened
        self._device: Device
        self._current: _Current | None = None
        self._workloads: dict[str, Workload] = {}
        self._ran: set[tuple[str, bytes, str]] = set()

    def run(self) -> None:
        try:
            self._pin()
            self._device = self._open_device(self._info)
            self._info = self._device.describe()
        except Exception as error:
            self._opened(self._index, _ours(error))
            return
        self._opened(self._index, self._info)
        while (command := self._next()) is not None:
            self._guarded(command)

    def _pin(self) -> None:
        """0 is this thread, and those that it starts."""
        if self._info.cores:
            os.sched_setaffinity(0, self._info.cores)
        if self._info.cores and self._info.members:
            # A team has its process to itself: the threads that libraries have made already, too.
            for thread in Path("/proc/self/task").iterdir():
                with contextlib.suppress(OSError):  # it has just ended
                    os.sched_setaffinity(int(thread.name), self._info.cores)
        # The engine's thread, which may be on this core just now, has others to wake as well.
        with contextlib.suppress(OSError):  # a sandbox may refuse; it's only faster
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

    def _next(self) -> DeviceCommand | None:
        """The next command; meanwhile chunks run. Blocks only when none is in flight."""
        while self._current is not None and self._current.pipeline.busy:
            try:
                return self._poll(self._current.pipeline)
            except Empty:
                self._step(self._current)
        return self.commands.get()

    def _poll(self, pipeline: Pipeline) -> DeviceCommand | None:
        if self._info.clock == "virtual" and pipeline.expects_more:
            return self.commands.get(timeout=PATIENCE)
        return self.commands.get_nowait()

    def _step(self, current: _Current) -> None:
        try:
            current.pipeline.step()
        except ChunkFailed as failed:
            cause = failed.__cause__
            self._current = None
            self._device.prepare(None)  # or it would hold the job's files until the next one
            self._trouble(current.job, cause if cause is not None else failed, failed.chunk.id)
        except DeviceFault as fault:
            self._trouble(current.job, fault, None)

    def _guarded(self, command: DeviceCommand) -> None:
        """No error of a job may end the process."""
        try:
            self._handle(command)
        except Exception as error:
            self._trouble(command.job, error, None)

    def _handle(self, command: DeviceCommand) -> None:
        match command:
            case Prepare():
                self._prepare(command)
            case Run():
                # Without the job (it failed here, and the engine knows) its chunks are dropped.
                if self._current is not None and self._current.job == command.job:
                    self._current.pipeline.add(command.chunks)
            case Fill():
                self._fill(command)
            case Check():
                self._check(command)
            case Release():
                self._release(command)
            case Fence():
                self._release(command)
                self._send(Fenced(command.job, self._index, command.number))

    def _prepare(self, command: Prepare) -> None:
        self._forget()
        workload = self._workload(command.workload)
        params = msgspec.json.decode(command.params, type=workload.Params)
        specs = workload.arrays(params)
        hosts = self._attachments.hosts(command.job, command.arrays, specs)
        link = self._info.link
        slots = command.slots if link else 1
        job = DeviceJob(
            workload=workload,
            params=params,
            variant=command.variant,
            inputs=hosts[0],
            outputs=hosts[1],
            chunk=command.chunk,
            demand=workload.demand(params, self._info.kind),
            memory=command.memory,
            slots=slots,
            threads=self._info.threads,
            cache=_cache(),
            say=lambda text: self._send(DeviceNote(command.job, self._index, text)),
        )
        self._device.prepare(job)
        memory = command.memory if link else 0
        layout = SlotAllocator(
            lambda units: slot_bytes(job.demand, units),
            memory,
            slots,
            command.ring,
            job.chunk,
            command.sizes,
        )
        depth = min(slots + 1, command.window) if link else 1
        pipeline = Pipeline(self._device, layout, depth, self._teller(command))
        self._current = _Current(command.job, workload, params, hosts, pipeline)
        if command.answer:
            self._send(Prepared(command.job, self._index))

    def _teller(self, command: Prepare) -> Callable[[Chunk, ChunkTimes], None]:
        kernel = (command.workload, command.params, command.variant)

        def tell(chunk: Chunk, times: ChunkTimes) -> None:
            if kernel not in self._ran:
                if len(self._ran) >= MOST_KERNELS:
                    self._ran.clear()
                self._ran.add(kernel)
                times = msgspec.structs.replace(times, cold=True)
            self._send(ChunkDone(command.job, self._index, chunk.id, times))

        return tell

    def _fill(self, command: Fill) -> None:
        current = self._need(command.job)
        inputs, outputs = current.hosts
        array = (outputs if command.poison else inputs)[command.array]
        if command.poison:
            verification.poison(array, command.first, command.count)
        else:
            verification.fill(
                current.workload, current.params, array, command.first, command.count, command.seed
            )
        self._send(Filled(command.job, self._index))

    def _check(self, command: Check) -> None:
        current = self._need(command.job)
        verdict = verification.check(
            current.workload,
            current.params,
            current.hosts,
            command.first,
            command.count,
            command.samples,
            command.seed,
        )
        self._send(
            Checked(
                command.job,
                self._index,
                verdict.worst,
                verdict.unit,
                verdict.max_error,
                verdict.sample_error,
            )
        )

    def _release(self, command: Release | Fence) -> None:
        if self._current is not None and self._current.job == command.job:
            self._forget()
        self._attachments.forget_job(command.job)

    def _forget(self) -> None:
        """Let what is in flight end, then drop every reference to the job's arrays."""
        if self._current is not None:
            self._current.pipeline.drain()
        self._current = None
        self._device.prepare(None)

    def _need(self, job: int) -> _Current:
        if self._current is None or self._current.job != job:
            raise InternalError(f"{self._info.name}: job {job} isn't prepared")
        return self._current

    def _workload(self, reference: str) -> Workload:
        found = self._workloads.get(reference)
        if found is None:
            found = self._workloads[reference] = find(reference)
        return found

    def _trouble(self, job: int, error: BaseException, chunk: int | None) -> None:
        cause = failure_cause(error)
        record = to_record(_ours(error))
        short = ErrorRecord(record.code, record.message[:MOST_SAID])
        self._send(CommandFailed(job, self._index, cause, short, chunk))
        if cause == "fault":
            # A normal exit would run destructors against a device that no longer answers.
            os._exit(FAULT_EXIT)


def failure_cause(error: BaseException) -> FailureCause:
    """Classify what a command failed with."""
    if isinstance(error, DeviceFault):
        return "fault"
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, IOFailure | CantCreate):
        return "io"
    return "variant" if isinstance(error, UsageError) else "kernel"


def _ours(error: BaseException) -> HetschedError:
    """`error` as one of ours: what a kernel raises is the job's failure, not our bug."""
    if isinstance(error, HetschedError):
        return error
    if isinstance(error, DeviceOutOfMemory | DeviceFault):
        return JobFailed(str(error))
    return JobFailed(f"the kernel failed: {type(error).__name__}: {error}")


@functools.cache
def _cache() -> str:
    """The cache folder, made once a process: looking each time costs a job 0.1 ms."""
    folder = cache_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)
