"""The timed step of a job that is computed in one pass: chunks run, lost ones elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping

from hetsched.config import DeadlinesConfig
from hetsched.dispatch.dispatcher import Command, DeviceJoined, Send, Started
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.run.attempt import Attempt, DeviceWait, Joined, Lost, Message, Rejoined
from hetsched.engine.run.computation import Computation, RunningChunk
from hetsched.engine.small_jobs import Outlook
from hetsched.engine.threads import Step
from hetsched.store.output_files import mark_finished, merged
from hetsched.transport.device_messages import ChunksDone, Run
from hetsched.units import format_seconds

log = logging.getLogger(__name__)

MARK_SECONDS = 5.0
"""Between two marks: so much is computed again after a crash, at most."""
MAX_PENDING = 4096
"""Chunks that are merged into ranges at once."""
JOBS_PER_CORE = 2
"""A core computes for a main job and a small one at once, each half of the time."""


async def compute(attempt: Attempt) -> None:
    """Run all chunks. Raises StartOver if no assigned device remains."""
    await _Pass(attempt).run()


class _Pass:
    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._running = attempt.running
        self._deadlines = attempt.running.context.deadlines
        infos = [attempt.infos[device] for device in attempt.assignments]
        self._parts = FinishedParts(self._running.job, self._running.context)
        self._computation = attempt.computation = Computation(
            attempt.assignments,
            attempt.times,
            stealing=self._running.steals(infos),
            on_finished=self._parts.add,
        )
        self._is_done = False

    async def run(self) -> None:
        attempt, computation = self._attempt, self._computation
        attempt.begin_step("computing", self._waits, self._deadlines.chunk)
        self._running.report_progress(attempt, force=True)
        self._send(computation.handle([Started()], time.monotonic()))
        while not self._is_done:
            event = await attempt.event()
            now = time.monotonic()
            match event:
                case Message(device, ChunksDone() as done):
                    attempt.prepared.add(device)  # if no answer to Prepare is due
                    self._send(computation.chunks_done(device, done, now))
                case Joined(device):
                    attempt.prepare_again(device)
                case Rejoined(device):
                    self._send(computation.handle([DeviceJoined(device)], now))
                case Lost(device):
                    self._send(computation.device_lost(device, now))
            if not self._is_done:
                self._running.report_progress(attempt)
        await self._parts.close()

    def _send(self, commands: Iterable[Command]) -> None:
        attempt = self._attempt
        for command in commands:
            if isinstance(command, Send):
                _run_chunks(attempt, command)
            else:
                self._is_done = True

    def _waits(self, now: float) -> Mapping[str, DeviceWait]:
        waits = self._attempt.joining_waits()
        slowdown = JOBS_PER_CORE if self._running.shares_cores else 1
        for chunk in self._computation.running_chunks():
            seconds, key = chunk_seconds(chunk, self._deadlines, slowdown)
            limit = f"{format_seconds(seconds)} (deadlines.{key})"
            reason = f"a chunk of {chunk.units} units takes longer than {limit}"
            waits[chunk.device] = DeviceWait(chunk.since, seconds, reason)
        return waits


def _run_chunks(attempt: Attempt, command: Send) -> None:
    message = Run(attempt.id, command.chunks, command.opens_tail)
    attempt.running.context.fleet.send(command.device, message)


def chunk_seconds(
    chunk: RunningChunk, deadlines: DeadlinesConfig, slowdown: float = 1
) -> tuple[float, str]:
    """Return how long a chunk may take, and the key of the configuration that decides it.

    A device without a prediction may take `chunk_factor` times as long per unit as the slowest
    of the others has taken so far, and that many times again.

    `slowdown`: factor on its predicted time.
    """
    factor = deadlines.chunk_factor
    if chunk.predicted_seconds is not None:
        seconds = slowdown * factor * chunk.predicted_seconds
    elif chunk.seconds_elsewhere is not None:
        seconds = slowdown * factor * factor * chunk.seconds_elsewhere
    else:
        return deadlines.step, "step"
    return (seconds, "chunk_factor") if seconds > deadlines.chunk else (deadlines.chunk, "chunk")


def outlook(attempt: Attempt, now: float) -> Outlook | None:
    """Return what an attempt still has to do; None if nothing may run beside it, or it is unknown.

    Nothing runs beside explicit measurements, iterations or a core team (they wait for the slowest
    core) or devices with a virtual clock; nor while kernels are made, which takes up to a minute.
    """
    running = attempt.running
    if attempt.step not in ("filling", "computing") or running.iterations is not None:
        return None
    infos = [attempt.infos[device] for device in attempt.assignments]
    if running.job.measure or any(i.members or i.clock == "virtual" for i in infos):
        return None
    if attempt.is_stopping:
        return None
    if attempt.computation is None:
        seconds = attempt.plan.predicted_seconds  # before the first chunk
        return None if seconds is None else Outlook(seconds, attempt.assignments.keys())
    dispatcher = attempt.computation.dispatcher
    remaining = dispatcher.remaining_seconds(now)
    if remaining is None:
        return None
    return Outlook(remaining, dispatcher.busy_devices())


class FinishedParts:
    """The finished units of one pass, marked on disk now and then. On the loop's thread."""

    def __init__(self, job: ResolvedJob, context: EngineContext) -> None:
        self._job, self._context = job, context
        self._is_kept = bool(job.parts_identity and job.outputs)
        self._ranges = job.finished
        self._new: list[tuple[int, int]] = []
        self._due = time.monotonic() + MARK_SECONDS
        self._marking: asyncio.Future[None] | None = None

    def add(self, first: int, count: int) -> None:
        """Note a chunk whose data have been written to the files."""
        if not self._is_kept:
            return
        self._new.append((first, first + count))
        if len(self._new) >= MAX_PENDING:
            self._merge()
        if time.monotonic() >= self._due and self._marking is None:
            self._mark()

    async def close(self) -> None:
        """Wait for a mark in progress: afterwards the files get their names."""
        if self._marking is not None:
            await self._marking

    def _merge(self) -> None:
        self._ranges = merged([*self._ranges, *self._new])
        self._new.clear()

    def _mark(self) -> None:
        self._merge()
        ranges, identity = self._ranges, self._job.parts_identity
        try:
            # Descriptors of its own: the job's may be closed before the thread has ended.
            files = [(out.hidden, os.dup(out.fd)) for out in self._job.outputs.values()]
        except OSError as error:
            log.warning("finished parts can't be marked: %s", error)
            self._due = time.monotonic() + MARK_SECONDS
            return
        self._marking = self._context.loop.create_future()

        def mark(step: Step) -> None:
            step.enter(f"writing {', '.join(hidden for hidden, _ in files)} to disk")
            try:
                mark_finished(files, identity, ranges)
            finally:
                for _, fd in files:
                    os.close(fd)

        self._context.disk.submit(mark, self._on_marked, deadline=self._context.deadlines.step)

    def _on_marked(self, value: None, error: BaseException | None) -> None:
        if error is not None:  # the job goes on; the disk is reported when it publishes
            log.warning("finished parts can't be marked: %s", error)
        marking, self._marking = self._marking, None
        self._due = time.monotonic() + MARK_SECONDS
        if marking is not None and not marking.done():
            marking.set_result(None)
