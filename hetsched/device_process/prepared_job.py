"""A job that a device holds, from Prepare to Release: its arrays, its chunks and its tasks."""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import msgspec

from hetsched import errors
from hetsched.device import TAIL_CHUNK_ID, Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.device_process import fill_and_check
from hetsched.device_process.arrays import Attachments, HostArrays
from hetsched.device_process.epochs import EpochRunner, IterativeRun
from hetsched.devices.base import Device, DeviceFault, DeviceJob, DeviceOutOfMemory
from hetsched.errors import plug_in_error
from hetsched.memory import MemoryDemand
from hetsched.paths import cache_dir
from hetsched.plans.slots import SlotAllocator, slot_bytes
from hetsched.transport import device_messages
from hetsched.workload import ArraySpec, BaseWorkload, Iterative, find
from hetsched.workload.protocol import decode_params
from hetsched.workload.registry import check_sources, note_sources

MAX_KERNELS = 1000
"""Kernels whose first chunk is remembered."""
MAX_SAID = 300
"""Characters of what a plug-in says; more is cut off. Arbitrary."""
MAX_MESSAGE_CHARACTERS = 2000
"""Of an error's text, and of its frames."""
MAX_REPORT_SECONDS = 0.25
"""No chunk is reported later than that, as far as the next one can be predicted. If the process
dies, so much is computed again."""
ONLY_SLOT = Slot(0, 0)
"""Of a device in the host's memory."""

Work = device_messages.Run | device_messages.Fill | device_messages.Iterate | device_messages.Check


def error_record(error: BaseException) -> errors.ErrorRecord:
    """Return `error` with bounded texts; that of a kernel is the job's failure, not our bug."""
    if isinstance(error, DeviceOutOfMemory | DeviceFault):
        record = errors.to_record(errors.JobFailed(errors.text_of(error)))
    else:
        record = errors.to_record(plug_in_error("the kernel", error))
    message, frames = record.message, record.frames
    return errors.ErrorRecord(
        record.code, message[:MAX_MESSAGE_CHARACTERS], frames[-MAX_MESSAGE_CHARACTERS:]
    )


def failure_cause(error: BaseException, has_link: bool) -> device_messages.FailureCause:
    if isinstance(error, DeviceFault):
        return "fault"
    # A MemoryError of a kernel in host memory is the kernel's: a smaller plan won't help
    if isinstance(error, DeviceOutOfMemory) or (isinstance(error, MemoryError) and has_link):
        return "memory"
    if isinstance(error, errors.IOFailure | errors.CantCreate):
        return "io"
    return "variant" if isinstance(error, errors.UsageError) else "kernel"


class StepFailed(Exception):
    """A job can't go on, with the reason as ``__cause__``.

    `chunk` failed, and none is in flight; None: something else failed.
    """

    def __init__(self, chunk: Chunk | None = None) -> None:
        super().__init__(chunk)
        self.chunk = chunk


class Pipeline:
    """The chunks of one run on one device of any kind, at most `depth` of them in flight.

    The device orders its own operations, except where `plans.slots` requires that no chunk is in
    flight. `slots`: None: it works in the host's memory.
    """

    def __init__(
        self,
        device: Device,
        slots: SlotAllocator | None,
        depth: int,
        on_done: Callable[[Chunk, ChunkTimes], None],
    ) -> None:
        self._device = device
        self._slots = slots
        self._depth = depth
        self._on_done = on_done
        self._waiting: deque[Chunk] = deque()
        self._in_flight: deque[Chunk] = deque()

    def add(self, chunks: Iterable[Chunk]) -> None:
        self._waiting.extend(chunks)

    @property
    def pending(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    @property
    def expects_more(self) -> bool:
        """Whether further chunks are announced and could start before the oldest finishes."""
        if self._waiting or not self._in_flight:
            return False
        return len(self._in_flight) < self._depth - 1 and not self._in_flight[-1].last

    def step(self) -> None:
        """Start the next chunk if there is room for one, else wait for the oldest.

        Raises StepFailed, once the others in flight have finished and been reported; DeviceFault.
        """
        if self._waiting and len(self._in_flight) < self._depth:
            self._begin(self._waiting.popleft())
            if self._depth > 1:
                return
        if self._in_flight:
            self._finish()

    def drain(self) -> None:
        """Drop queued chunks and finish those in flight. Raises DeviceFault."""
        self._waiting.clear()
        while self._in_flight:
            with contextlib.suppress(StepFailed):
                self._finish()

    def _begin(self, chunk: Chunk) -> None:
        slot, needs_idle = ONLY_SLOT, False
        try:
            if self._slots is not None:
                slot, needs_idle = self._slots.allocate(chunk.count, chunk.barrier)
        except BaseException as error:
            self._raise_failure(chunk, error)
        while needs_idle and self._in_flight:
            self._finish()
        try:
            self._device.copy_in(chunk, slot)
            self._device.compute(chunk, slot)
            self._device.copy_out(chunk, slot)
        except BaseException as error:
            self._raise_failure(chunk, error)
        self._in_flight.append(chunk)

    def _finish(self) -> None:
        chunk = self._in_flight.popleft()
        try:
            times = self._device.wait(chunk)
        except BaseException as error:
            self._raise_failure(chunk, error)
        self._on_done(chunk, times)

    def _raise_failure(self, chunk: Chunk, error: BaseException) -> NoReturn:
        """Raise `error` as StepFailed; also SystemExit and the like, which a kernel may raise."""
        if isinstance(error, StepFailed | DeviceFault):
            raise error
        self.drain()
        raise StepFailed(chunk) from error


class PreparedJob:
    """One attempt at a job on one device; advances a step at a time, on the loop's thread.

    `device`: computes this job only, until `drop`. `warm`: kernels that have computed a chunk in
    this process: the first one loads code.
    """

    def __init__(
        self,
        command: device_messages.Prepare,
        device: Device,
        info: DeviceInfo,
        attachments: Attachments,
        send: Callable[[device_messages.DeviceEvent], None],
        warm: set[tuple[str, bytes, str]],
    ) -> None:
        self.device = device
        self.attempt = command.attempt
        self.command = command
        self._info = info
        self._attachments = attachments
        self._send = send
        self._warm = warm
        # The device may take chunks: its own ones have all been sent, and units may remain.
        self._tail_is_open = False
        # In a race, the last report shows which variant has ended the process; and the queue of a
        # device with copies in flight must not run dry.
        self._gathers = not info.link and not command.rivals
        # Finished chunks that the engine hasn't heard of, and the start of the first of them
        self._done: list[device_messages.DoneChunk] = []
        self._done_since = 0.0
        # Chunks that the device had when the engine last sent some or heard of some
        self._level = 0
        self._arrays: HostArrays = ({}, {})
        self._pipeline: Pipeline | None = None
        self._run: IterativeRun | None = None
        self._waiting: list[Work] = []  # Ordered before the job was prepared
        # Preparing, filling, checking and epochs, after the chunks; each step is a block
        self._tasks: deque[Iterator[None]] = deque([self._preparing()])

    @property
    def is_prepared(self) -> bool:
        return self._pipeline is not None

    @property
    def is_busy(self) -> bool:
        if self._tasks or self._tail_is_open:
            return True
        return self._pipeline is not None and self._pipeline.pending > 0

    @property
    def expects_more(self) -> bool:
        return self._pipeline is not None and self._pipeline.expects_more

    def order(self, work: Work) -> None:
        if self._pipeline is None:
            self._waiting.append(work)
            return
        match work:
            case device_messages.Run():
                self._pipeline.add(work.chunks)
                self._level = self._pipeline.pending
                self._tail_is_open |= work.opens_tail
            case device_messages.Fill():
                inputs, outputs = self._arrays
                array = (outputs if work.poison else inputs)[work.array]
                steps = fill_and_check.fill(self._workload, self._params, array, work)
                self._tasks.append(self._answering(steps))
            case device_messages.Check():
                arrays = self._arrays
                checks = fill_and_check.check(self._workload, self._params, arrays, work)
                self._tasks.append(self._answering(checks))
            case device_messages.Iterate():
                assert self._run is not None, "the engine iterates iterative jobs only"
                self._tasks.append(EpochRunner(self._run, work, self._send).steps())

    def _answering(
        self, steps: Generator[None, None, device_messages.DeviceEvent]
    ) -> Iterator[None]:
        self._send((yield from steps))

    def step(self) -> None:
        """Advance by a chunk, or by one block of a task. Raises DeviceFault, StepFailed."""
        pipeline = self._pipeline
        if pipeline is not None and pipeline.pending:
            pipeline.step()
        elif pipeline is not None and self._tail_is_open:
            # Only when it can start, so that no chunk waits here while another core is idle
            tail, part = self._attachments.tail, self.command.tail
            assert tail is not None and part is not None, "or the job wouldn't be prepared"
            taken = tail.take(self.attempt, part)
            if taken is None:
                self._tail_is_open = False
                self.report(has_left=True)
            else:
                pipeline.add([Chunk(TAIL_CHUNK_ID, *taken, last=True)])
                pipeline.step()
        else:
            try:
                next(self._tasks[0])
            except StopIteration:
                self._tasks.popleft()
            except BaseException as error:  # also what only a plug-in would raise
                self._tasks.clear()
                raise StepFailed from error

    def report(self, *, has_left: bool = False) -> None:
        done, self._done = tuple(self._done), []
        if done or has_left:
            self._send(device_messages.ChunksDone(self.attempt, done, has_left))

    def drop(self) -> None:
        """Drop queued chunks, finish those in flight, and give up the arrays. DeviceFault."""
        self._waiting.clear()
        if self._pipeline is not None:
            self._pipeline.drain()
        self.device.prepare(None)
        # Kept kernels and cycles refer to the job: its arrays are freed now all the same.
        self._tasks.clear()
        self._pipeline = self._run = None
        self._arrays = ({}, {})

    # ---- preparing

    def _preparing(self) -> Iterator[None]:
        command = self.command
        if command.tail is not None and self._attachments.tail is None:
            raise errors.InternalError(f"{self._info.name} shares no tails")
        for stored in command.arrays:
            yield from self._attachments.populate(stored.key)
        workload, self._params, specs, demand = _described(
            command.workload, command.params, self._info.kind
        )
        self._workload = workload
        if workload.in_threads != "only":  # else the caller's own code runs, as it is
            check_sources(command.workload, command.source)
        self._arrays = self._attachments.host_arrays(
            command.arrays, specs, workload.takes_any_layout
        )
        job = self._device_job(demand)
        if isinstance(workload, Iterative):
            whole = {a.array: self._attachments.whole_array(a) for a in command.arrays}
            self._run = IterativeRun(self.device, job, whole)
        else:
            self.device.prepare(job)
        note_sources(command.workload)  # kernels have been loaded
        self._pipeline = self._make_pipeline(job)
        if command.answer:
            self._send(device_messages.Prepared(self.attempt))
        for work in self._waiting:
            self.order(work)
        self._waiting.clear()

    def _device_job(self, demand: MemoryDemand) -> DeviceJob:
        command, info = self.command, self._info
        inputs, outputs = self._arrays
        return DeviceJob(
            workload=self._workload,
            params=self._params,
            variant=command.variant,
            inputs=inputs,
            outputs=outputs,
            chunk=command.chunk,
            demand=demand,
            memory=command.memory,
            slots=command.slots if info.link else 1,
            chunk_sizes=command.chunk_sizes,
            threads=info.threads,
            cache=cache_folder(),
            say=self._say,
            rivals=command.rivals,
            reject=lambda variant, error: self._send(
                device_messages.CommandFailed(
                    self.attempt, "variant", error_record(error), variant=variant
                )
            ),
        )

    def _say(self, text: object) -> None:
        """Report what a plug-in says: anything, of any length."""
        self._send(
            device_messages.DeviceNote(self.attempt, errors.encodable(str(text)[:MAX_SAID]))
        )

    def _make_pipeline(self, job: DeviceJob) -> Pipeline:
        command = self.command
        if not self._info.link:
            return Pipeline(self.device, None, 1, self._on_done)
        slots = None
        if not isinstance(job.workload, Iterative):
            slots = SlotAllocator(
                lambda units: slot_bytes(job.demand, units),
                command.memory,
                job.slots,
                command.ring,
                job.chunk,
                command.sizes,
            )
        # With overlap one more than the slots
        return Pipeline(self.device, slots, min(job.slots + 1, command.window), self._on_done)

    # ---- chunks

    def _on_done(self, chunk: Chunk, times: ChunkTimes) -> None:
        """Report a chunk, now or with later ones: at the latest when the queue is half empty."""
        assert self._pipeline is not None, "it has computed a chunk"
        tail, part = self._attachments.tail, self.command.tail
        is_taken = chunk.id == TAIL_CHUNK_ID
        command = self.command
        variant = (command.variant, *command.rivals)[times.kernel]
        kernel = (command.workload, command.params, variant)
        is_cold = kernel not in self._warm
        if is_cold:
            if len(self._warm) >= MAX_KERNELS:
                self._warm.clear()
            self._warm.add(kernel)
        if is_cold or is_taken:
            times = msgspec.structs.replace(times, cold=is_cold, taken=is_taken)
        start, end = times.start, times.end
        if not self._done:
            self._done_since = start
        self._done.append(device_messages.DoneChunk(chunk.id, chunk.first, chunk.count, times))
        queued = self._pipeline.pending
        # With an open tail the device goes on by itself, whatever is in its queue.
        is_low = not self._tail_is_open and 2 * queued <= self._level
        next_end = end + (end - start)  # if the next one takes as long
        is_due = is_cold or next_end - self._done_since >= MAX_REPORT_SECONDS
        if not self._gathers or is_low or is_due:
            self._level = queued
            self.report()
        # At once: another job may come before the next chunk would be taken.
        if is_taken and tail is not None and part is not None:
            self._tail_is_open = not tail.is_empty(self.attempt, part)
            if not self._tail_is_open:
                self.report(has_left=True)


@functools.lru_cache(maxsize=16)
def _described(
    reference: str, params: bytes, kind: str
) -> tuple[BaseWorkload, Any, Sequence[ArraySpec], MemoryDemand]:
    """Return a workload, its parameters, its arrays and its demand, monotone, on a `kind`."""
    workload = find(reference)
    decoded = decode_params(workload, params)
    demand = workload.demand(decoded, kind).monotone()
    return workload, decoded, workload.arrays(decoded), demand


@functools.cache
def cache_folder() -> str:
    """Return the cache folder, created once per process: checking each time costs 0.1 ms."""
    folder = cache_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return str(folder)
