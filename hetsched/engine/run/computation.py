"""One pass over a job's load: dispatches its chunks and records their times. Pure.

The times of a device's chunks are of bounded length: beyond MAX_RECORDS neighbours are merged, so
that an hour of short chunks takes no more memory than a few minutes. Units, first start and last
end stay exact. Merged records are longer than any chunk, by which `learning.py` recognises them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hetsched.device import Chunk, ChunkTimes
from hetsched.dispatch.dispatcher import (
    ChunkFinished,
    Command,
    DeviceLost,
    Dispatcher,
    Event,
    Send,
    TailChunkFinished,
    TailLeft,
)
from hetsched.planner.records import Assignment
from hetsched.plans.shared_tail import TAIL_CHUNK_ID
from hetsched.store.output_files import Ranges, without
from hetsched.transport.device_messages import ChunksDone, DoneChunk

MAX_RECORDS = 1024
"""Records per device, some hundred bytes each."""

MAX_RANGES = 8
"""Ranges kept per device: the first ones and the latest. Their edges are compared with the
reference, which takes long, and there may be one range per chunk of a tail."""

Record = tuple[int, ChunkTimes]
"""Units and times of a chunk, or of neighbours."""

Span = tuple[float, float]


def add_record(records: list[Record], units: int, times: ChunkTimes) -> None:
    """Append a chunk; halve the list by merging pairs if it is too long."""
    records.append((units, times))
    if len(records) > MAX_RECORDS:
        own = [record for record in records if not record[1].taken]
        taken = [record for record in records if record[1].taken]
        records[:] = [*_halved(own), *_halved(taken)]


def _halved(records: list[Record]) -> list[Record]:
    pairs = [records[start : start + 2] for start in range(0, len(records), 2)]
    return [_merged(*pair) for pair in pairs]


def _merged(first: Record, second: Record | None = None) -> Record:
    if second is None:
        return first
    a, b = first[1], second[1]
    compute = _enclosing(a.compute, b.compute)
    assert compute is not None, "every chunk has a compute phase"
    return first[0] + second[0], ChunkTimes(
        copy_in=_enclosing(a.copy_in, b.copy_in),
        compute=compute,
        copy_out=_enclosing(a.copy_out, b.copy_out),
        late=a.late + b.late,
        busy=_sum(a.busy, b.busy),
        host_overhead=_sum(a.host_overhead, b.host_overhead),
        cold=a.cold or b.cold,
        kernel=a.kernel,
        taken=a.taken,
        units_per_call=max(a.units_per_call, b.units_per_call),
    )


def _enclosing(a: Span | None, b: Span | None) -> Span | None:
    if a is None or b is None:
        return a or b
    return min(a[0], b[0]), max(a[1], b[1])


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


class ComputedRanges:
    """The ranges of units that each device really computed, of bounded number.

    A device's chunks are contiguous but for those that it stole, reran or took from a tail.
    """

    def __init__(self) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {}

    def add(self, device: str, first: int, count: int) -> None:
        ranges = self._ranges.setdefault(device, [])
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], first + count)
            return
        ranges.append((first, first + count))
        if len(ranges) > MAX_RANGES:
            del ranges[MAX_RANGES // 2]

    def edges(self) -> list[int]:
        """Return the first and the last unit of each range, to compare with the reference."""
        ranges = [pair for pairs in self._ranges.values() for pair in pairs]
        return [unit for first, end in ranges for unit in (first, end - 1)]


@dataclass(frozen=True, slots=True)
class RunningChunk:
    """The oldest chunk that was sent to a device and hasn't finished."""

    device: str
    units: int
    since: float  # The earliest time at which the device can have started it
    predicted_seconds: float | None  # From the device's planned or measured speed
    # At the speed of the slowest other device that has finished a chunk
    seconds_elsewhere: float | None


class Computation:
    """The dispatcher of one pass, with the times of its chunks.

    Parameters
    ----------
    assignments : mapping
        Device -> its assignment.
    times : dict
        Device -> (units, times) of its finished chunks; filled here. Of very many, neighbours
        are merged.
    stealing : bool
        Idle devices steal chunks.
    on_finished : callable
        on_finished(first, count): a chunk is complete.
    """

    def __init__(
        self,
        assignments: Mapping[str, Assignment],
        times: dict[str, list[tuple[int, ChunkTimes]]],
        *,
        stealing: bool = False,
        on_finished: Callable[[int, int], None] = lambda first, count: None,
    ) -> None:
        self.has_lost_device = False  # A device was lost, so the times aren't those of the plan
        self._on_finished = on_finished
        self._times = times
        for device in assignments:
            self._times[device] = []
        self.ranges = ComputedRanges()  # Which units each device computed
        self._sent: dict[int, Chunk] = {}
        self._paces = {device: assignment.pace for device, assignment in assignments.items()}
        self.dispatcher = Dispatcher(
            {device: assignment.chunks for device, assignment in assignments.items()},
            {device: assignment.window for device, assignment in assignments.items()},
            {device: assignment.max_chunk for device, assignment in assignments.items()},
            self._paces if stealing else None,
            {d: assignment.tail for d, assignment in assignments.items() if assignment.tail},
        )

    def chunks_done(self, device: str, done: ChunksDone, now: float) -> list[Command]:
        """Record a device's report; what it took from the tail counts only if the tail does."""
        finished: list[Event] = []
        taken: list[DoneChunk] = []
        events: list[Event] = []
        for chunk in done.chunks:
            if chunk.chunk == TAIL_CHUNK_ID:
                taken.append(chunk)
                events.append(TailChunkFinished(device, chunk.first, chunk.count))
            else:
                sent = self._sent.pop(chunk.chunk, None)
                if sent is not None:  # else it has been reported before
                    self._record(device, sent.first, sent.count, chunk.times)
                finished.append(ChunkFinished(device, chunk.chunk))
        commands = self.handle(finished, now) if finished else []
        if done.has_left:
            events.append(TailLeft(device))
        if not events:
            return commands
        units_before = self.dispatcher.done_units(device)
        commands += self.handle(events, now)
        if self.dispatcher.done_units(device) > units_before:  # else they run again
            for chunk in taken:
                self._record(device, chunk.first, chunk.count, chunk.times)
        return commands

    def _record(self, device: str, first: int, count: int, times: ChunkTimes) -> None:
        self.ranges.add(device, first, count)
        self._on_finished(first, count)
        add_record(self._times[device], count, times)

    def device_lost(self, device: str, now: float) -> list[Command]:
        self.has_lost_device = True
        return self.handle([DeviceLost(device)], now)

    def running_chunks(self) -> list[RunningChunk]:
        """Return the oldest unfinished chunk of each device that has been sent any."""
        slowest = max(self.dispatcher.measured_paces(), default=None)
        return [
            RunningChunk(
                device,
                chunk.count,
                since,
                self._predicted_seconds(device, chunk.count),
                None if slowest is None else slowest * chunk.count,
            )
            for device, chunk, since in self.dispatcher.oldest_sent()
        ]

    def running_kernel(self, device: str) -> int | None:
        """Return the kernel of the chunk that `device` computes at present; None: no chunk."""
        for name, chunk, _ in self.dispatcher.oldest_sent():
            if name == device:
                return chunk.kernel
        return None

    def _predicted_seconds(self, device: str, units: int) -> float | None:
        planned, measured = self._paces[device], self.dispatcher.measured_pace(device)
        paces = [pace for pace in (planned, measured) if pace is not None]
        return units * max(paces) if paces else None

    def handle(self, events: Sequence[Event], now: float) -> list[Command]:
        """Pass events to the dispatcher, and record the chunks to send."""
        commands = self.dispatcher.handle_together(events, now)
        for command in commands:
            if isinstance(command, Send):
                for chunk in command.chunks:
                    self._sent[chunk.id] = chunk
        return commands


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
