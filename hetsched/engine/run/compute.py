"""The timed step of a job that is computed in one pass: chunks run, lost ones elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hetsched.device import TAIL_CHUNK_ID, ChunkTimes
from hetsched.dispatch import Dispatcher
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.processes.fleet import Joined, Lost, Message
from hetsched.engine.run.attempt import Attempt, DeviceWait
from hetsched.store import output_files
from hetsched.transport import device_messages
from hetsched.units import merged

if TYPE_CHECKING:
    from hetsched.engine.engine import Engine

log = logging.getLogger(__name__)

MARK_SECONDS = 5.0
"""Between two marks: so much is computed again after a crash, at most."""
MAX_PENDING = 4096
"""Chunks that are merged into ranges at once."""
JOBS_PER_CORE = 2
"""A core computes for a main job and a small one at once, each half of the time."""
MAX_RECORDS = 1024
"""Records per device, some hundred bytes each."""

Record = tuple[int, ChunkTimes]
"""Units and times of a chunk, or of neighbours."""


class Computation:
    """One pass over a job's load: its dispatcher, and what its devices have computed."""

    def __init__(self, attempt: Attempt) -> None:
        attempt.computation = self
        assignments = attempt.assignments
        self._attempt = attempt
        self._runner = attempt.runner
        engine = self._runner.engine
        self._deadlines = engine.deadlines
        self._parts = FinishedParts(self._runner.job, engine)
        attempt.times.update((device, []) for device in assignments)
        # Stealing is for devices on the wall clock only, and would spoil measurements.
        steals = engine.config.stealing and not self._runner.job.measure
        steals = steals and {attempt.infos[device].clock for device in assignments} == {"wall"}
        self.dispatcher = Dispatcher(
            {device: each.chunks for device, each in assignments.items()},
            {device: each.window for device, each in assignments.items()},
            {device: each.max_chunk for device, each in assignments.items()},
            {device: each.pace for device, each in assignments.items()} if steals else None,
            {device: each.tail for device, each in assignments.items() if each.tail is not None},
        )
        self.has_lost_device = False  # Then the times aren't those of the plan

    async def run(self) -> None:
        """Run all chunks. Raises StartOver if no assigned device remains."""
        attempt = self._attempt
        attempt.begin_step("computing", self._waits)
        self._runner.report_progress(attempt, force=True)
        self._send()
        while not self.dispatcher.is_finished:
            match await attempt.event():
                case Message(device, device_messages.ChunksDone() as done):
                    attempt.prepared.add(device)  # if no answer to Prepare is due
                    self._on_chunks(device, done)
                case Joined(device):
                    attempt.prepare_again(device)
                case Message(device, device_messages.Prepared()):  # its process had ended
                    self.dispatcher.join(device)
                    self._send()
                case Lost(device):
                    self.has_lost_device = True
                    self.dispatcher.lose(device)
                    self._send()
            if not self.dispatcher.is_finished:
                self._runner.report_progress(attempt)
        if self._parts.marking is not None:  # afterwards the files get their names
            await self._parts.marking

    def _send(self) -> None:
        for command in self.dispatcher.commands(time.monotonic()):
            message = device_messages.Run(self._attempt.id, command.chunks, command.opens_tail)
            self._runner.engine.fleet.send(command.device, message)

    def _on_chunks(self, device: str, done: device_messages.ChunksDone) -> None:
        """Record a device's report; what it took from the tail counts only if the tail does."""
        now = time.monotonic()
        records = self._attempt.times[device]
        for chunk in done.chunks:
            if chunk.chunk != TAIL_CHUNK_ID:
                self.dispatcher.finish_chunk(device, chunk.chunk, now)
            elif not self.dispatcher.finish_tail_chunk(device, chunk.first, chunk.count, now):
                continue  # its units run again
            add_record(records, chunk.count, chunk.times)
            self._parts.add(chunk.first, chunk.first + chunk.count)
        if done.has_left:
            self.dispatcher.leave_tail(device)
        self._send()

    def _waits(self, now: float) -> Mapping[str, DeviceWait]:
        """Return the waits for chunks, which may take `chunk_factor` times as long as expected.

        A device without a prediction is expected to take that many times as long per unit as the
        slowest of the others has taken so far.
        """
        deadlines, dispatcher, runner = self._deadlines, self.dispatcher, self._runner
        slowdown = JOBS_PER_CORE if runner.is_small or runner.small_jobs_beside else 1
        factor = deadlines.chunk_factor
        unknown = factor * max(dispatcher.measured_paces(), default=0.0)
        waits = self._attempt.joining_waits()
        for device, chunk, since in dispatcher.oldest_sent():
            planned = self._attempt.assignments[device].pace or 0.0
            pace = max(planned, dispatcher.measured_pace(device) or 0.0) or unknown
            seconds, key = float(deadlines.step), "deadlines.step"
            if pace:
                seconds, key = max(
                    (deadlines.chunk, "deadlines.chunk"),
                    (slowdown * factor * pace * chunk.count, "deadlines.chunk_factor"),
                )
            waits[device] = DeviceWait(since, seconds, f"a chunk of {chunk.count} units", key)
        return waits


def add_record(records: list[Record], units: int, times: ChunkTimes) -> None:
    """Append a chunk; if there are too many, merge pairs: units, start and end stay exact."""
    records.append((units, times))
    if len(records) > MAX_RECORDS:
        own = [record for record in records if not record[1].taken]
        taken = [record for record in records if record[1].taken]
        records[:] = [
            _merged(part[start : start + 2])
            for part in (own, taken)
            for start in range(0, len(part), 2)
        ]


def _merged(records: Sequence[Record]) -> Record:
    times = [times for _, times in records]
    return sum(units for units, _ in records), ChunkTimes(
        copy_in=_enclosing([each.copy_in for each in times if each.copy_in]),
        compute=(times[0].compute[0], times[-1].compute[1]),
        copy_out=_enclosing([each.copy_out for each in times if each.copy_out]),
        late=sum(each.late for each in times),
        cold=times[0].cold or times[-1].cold,
        kernel=times[0].kernel,
        taken=times[0].taken,
        units_per_call=max(each.units_per_call for each in times),
    )


def _enclosing(spans: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    return (spans[0][0], spans[-1][1]) if spans else None


class FinishedParts:
    """The finished units of one pass, marked on disk now and then. On the loop's thread."""

    def __init__(self, job: ResolvedJob, engine: Engine) -> None:
        self._job, self._engine = job, engine
        self._is_kept = bool(job.parts_identity and job.outputs)
        self._ranges = job.finished
        self._new: list[tuple[int, int]] = []
        self._due = time.monotonic() + MARK_SECONDS
        self.marking: asyncio.Future[None] | None = None

    def add(self, first: int, end: int) -> None:
        if not self._is_kept:
            return
        self._new.append((first, end))
        is_due = time.monotonic() >= self._due and self.marking is None
        if is_due or len(self._new) >= MAX_PENDING:
            self._ranges = merged([*self._ranges, *self._new])
            self._new.clear()
        if is_due:
            self._mark()

    def _mark(self) -> None:
        files, ranges, identity = [], self._ranges, self._job.parts_identity
        self._due = time.monotonic() + MARK_SECONDS
        try:
            # Descriptors of its own: the job's may be closed before the thread has ended.
            with contextlib.ExitStack() as stack:
                for output in self._job.outputs.values():
                    files.append((output.hidden, os.dup(output.fd), output.offset))
                    stack.callback(os.close, files[-1][1])
                close = stack.pop_all().close
        except OSError as error:
            log.warning("finished parts can't be marked: %s", error)
            return
        text = f"writing {', '.join(hidden for hidden, *_ in files)} to disk"

        # Not a task: a daemon that stops may close the loop before a mark has ended.
        self.marking = self._engine.loop.create_future()
        self._engine.disk.submit(
            lambda: output_files.mark_finished(files, identity, ranges),
            self._on_marked,
            text=text,
            release=close,
            deadline=self._engine.deadlines.step,
        )

    def _on_marked(self, value: None, error: BaseException | None) -> None:
        if error is not None:  # the job goes on; the disk is reported when it publishes
            log.warning("finished parts can't be marked: %s", error)
        self._due = time.monotonic() + MARK_SECONDS
        marking, self.marking = self.marking, None
        if marking is not None and not marking.done():  # else the job was aborted meanwhile
            marking.set_result(None)
