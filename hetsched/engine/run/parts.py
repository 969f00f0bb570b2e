"""What a durable job has finished in its output files, so that the next daemon goes on there."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import os
import time
from collections.abc import Iterable

from hetsched.device import Chunk
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.threads import Step
from hetsched.planner.records import Assignment
from hetsched.store.finished_parts import Ranges, mark_finished, merged, without

log = logging.getLogger(__name__)

MARK_SECONDS = 5.0
"""Between two marks: so much is computed again after a crash, at most."""
MAX_PENDING = 4096
"""Chunks that are merged into ranges at once."""


def remaining_assignments(
    assignments: Iterable[Assignment], finished: Ranges
) -> dict[str, Assignment]:
    """Return the assignments of devices with chunks, without the units that are finished.

    What is left of a shared tail becomes chunks of the cores that share it.
    """
    devices = {a.device: a for a in assignments if a.chunks}
    if not finished:
        return devices
    chunks = {device: _cut(a.chunks, finished) for device, a in devices.items()}
    tails: dict[tuple[int, int], list[str]] = {}
    for device, a in devices.items():
        if a.tail is not None:
            tails.setdefault((a.tail.first, a.tail.units), []).append(device)
    for (first, units), sharing in tails.items():
        turns = itertools.cycle(sharing)
        for start, end in without(first, first + units, finished):
            begin = start
            while begin < end:
                device = next(turns)
                count = min(end - begin, devices[device].max_chunk)
                chunks[device].append(Chunk(0, begin, count))
                begin += count
    numbers = itertools.count()
    return {
        device: dataclasses.replace(devices[device], chunks=_numbered(own, numbers), tail=None)
        for device, own in chunks.items()
        if own
    }


def _cut(chunks: Iterable[Chunk], finished: Ranges) -> list[Chunk]:
    return [
        Chunk(0, begin, end - begin, kernel=chunk.kernel)
        for chunk in chunks
        for begin, end in without(chunk.first, chunk.first + chunk.count, finished)
    ]


def _numbered(chunks: list[Chunk], numbers: Iterable[int]) -> list[Chunk]:
    return [
        Chunk(number, chunk.first, chunk.count, last=chunk is chunks[-1], kernel=chunk.kernel)
        for chunk, number in zip(chunks, numbers, strict=False)
    ]


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
