"""The chunks of one device: waiting, sent, and abandoned when it was lost; and its pace.

A long job has tens of thousands of chunks per core. A sequence that makes them on demand
(`EvenChunks`) is never expanded here, so that waiting chunks cost no memory.

Stealing (ours): the paces, planned and then measured, predict when devices finish; units move from
the device expected to finish last to an idle one if that shortens the run noticeably.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from hetsched.device import Chunk, EvenChunks


class WaitingChunks:
    """A queue over a sequence of chunks, of which the last may be replaced.

    Parameters
    ----------
    chunks : sequence of Chunk
        In order; not changed here.
    """

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self._next, self._end = 0, len(chunks)
        self._final: Chunk | None = None

    def __len__(self) -> int:
        return self._end - self._next + (self._final is not None)

    def __iter__(self) -> Iterator[Chunk]:
        for index in range(self._next, self._end):
            yield self._chunks[index]
        if self._final is not None:
            yield self._final

    def first(self) -> Chunk:
        """Return the next chunk. Raises IndexError if there is none."""
        return next(iter(self)) if len(self) else self._raise_empty()

    def popleft(self) -> Chunk:
        """Remove and return the next chunk. Raises IndexError if there is none."""
        if self._next < self._end:
            self._next += 1
            return self._chunks[self._next - 1]
        return self.pop()

    def pop(self) -> Chunk:
        """Remove and return the last chunk. Raises IndexError if there is none."""
        final, self._final = self._final, None
        if final is not None:
            return final
        if self._next == self._end:
            self._raise_empty()
        self._end -= 1
        return self._chunks[self._end]

    def replace_last(self, chunk: Chunk) -> None:
        """Put back another chunk for the one that was removed last by `pop`."""
        assert self._final is None, "the last chunk is removed first"
        self._final = chunk

    def clear(self) -> list[Chunk]:
        """Remove all chunks; return them with contiguous ones merged, as few large chunks."""
        merged: list[Chunk] = []
        for chunk in self:
            previous = merged[-1] if merged else None
            if previous is not None and previous.first + previous.count == chunk.first:
                merged[-1] = msgspec.structs.replace(previous, count=previous.count + chunk.count)
            else:
                merged.append(chunk)
        self._next = self._end = 0
        self._chunks, self._final = (), None
        return merged

    def _raise_empty(self) -> Chunk:
        raise IndexError("no chunk waits")


def total_units(chunks: Sequence[Chunk]) -> int:
    """Return the units of `chunks`; O(1) for those that are made on demand."""
    if isinstance(chunks, EvenChunks):
        return chunks.units
    return sum([chunk.count for chunk in chunks])


def largest_id(chunks: Sequence[Chunk]) -> int:
    """Return the largest id among `chunks`, -1 without any; O(1) as `total_units`."""
    if isinstance(chunks, EvenChunks):
        return chunks[-1].id if chunks else -1
    return max([chunk.id for chunk in chunks], default=-1)


MIN_GAIN = 0.1
"""Fraction of the remaining time that stealing must gain: less is within the noise of paces."""
RECENT_CHUNKS = 4
"""Latest chunks that determine the pace, few enough to detect a slowdown soon."""


@dataclass
class PaceTracker:
    """Seconds per unit of one device, planned and then measured.

    Attributes
    ----------
    planned : float or None, seconds/unit
    started : float or None, seconds
        When the first chunk was sent.
    first_chunk : float or None, seconds/unit
        Of the first chunk, which overlaps with no other; or of those reported together with it.
    measured : float or None, seconds/unit
        Of the latest chunks.
    """

    planned: float | None
    started: float | None = None
    first_chunk: float | None = None
    measured: float | None = None
    _marks: deque[tuple[float, int]] = field(
        default_factory=lambda: deque(maxlen=RECENT_CHUNKS + 1)
    )
    _done: int = 0
    _first_report: float | None = None

    @property
    def latest(self) -> float | None:
        """Measured seconds per unit, of the first chunk until there are more; None before."""
        return self.first_chunk if self.measured is None else self.measured

    def resume(self, now: float) -> None:
        """Restart timing when a chunk is sent after a pause."""
        if self.started is None:
            self.started = now
        if self._marks:
            self._marks.clear()
            self._marks.append((now, self._done))

    def record(self, units: int, now: float) -> None:
        """Record a finished chunk; of those reported together, all have the same `now`."""
        is_together = bool(self._marks) and self._marks[-1][0] == now
        self._done += units
        if self.started is not None and self._first_report in (None, now):
            self._first_report = now
            self.first_chunk = (now - self.started) / self._done
        if is_together:
            self._marks[-1] = (now, self._done)
        else:
            self._marks.append((now, self._done))
        if len(self._marks) > 1:
            (start, before), (end, after) = self._marks[0], self._marks[-1]
            self.measured = (end - start) / (after - before)

    def seconds_per_unit(self, now: float, in_flight: int) -> float | None:
        """Return the present pace; None while it is unknown.

        `in_flight`: units of the chunk expected to finish next, which may already be late.
        """
        pace = self.measured
        if pace is None:
            pace = self.planned if self.planned is not None else self.first_chunk
        if pace is not None and in_flight and self.started is not None:
            pace = max(pace, (now - self._last_mark) / in_flight)
        return pace

    def expected_end(self, now: float, in_flight: int, units: int) -> float | None:
        """Predict when `units`, including those in flight, are done; None without a pace."""
        pace = self.seconds_per_unit(now, in_flight)
        if pace is None:
            return None
        return max(now, self._last_mark + units * pace) if in_flight else now + units * pace

    @property
    def _last_mark(self) -> float:
        return self._marks[-1][0] if self._marks else self.started or 0.0


@dataclass(frozen=True)
class ExpectedFinish:
    """The predicted finish time of a device.

    Attributes
    ----------
    end : float, seconds
    pace : float, seconds/unit
    """

    end: float
    pace: float


def units_to_steal(now: float, thief: ExpectedFinish, victim: ExpectedFinish) -> int:
    """Return units to move from `victim` to `thief` so that both finish together; 0: no gain.

    `thief.pace` is the cost of additional units.
    """
    difference = victim.end - thief.end
    units = int(difference / (thief.pace + victim.pace)) if victim.pace > 0 else 0
    end = max(thief.end + units * thief.pace, victim.end - units * victim.pace)
    return units if units and victim.end - end >= MIN_GAIN * (victim.end - now) else 0


@dataclass
class DeviceQueue:
    """One device and its chunks.

    Attributes
    ----------
    waiting : WaitingChunks
        Not sent yet.
    window : int
        Maximum number of chunks sent but not finished.
    limit : int, units
        The largest chunk that it can run.
    pace : PaceTracker
    sent : dict of int to Chunk
        Chunks at the device, by id, oldest first.
    abandoned : deque of Chunk
        Chunks unfinished when the device was lost and not yet reassigned; those that were never
        sent are merged.
    abandoned_units : int, units
    is_lost : bool
    done : int, units
    busy_since : float, seconds
        When the oldest chunk at the device can have started.
    pending : int, units
        Waiting and sent: kept as a sum, because each event reads it for every device.
    """

    waiting: WaitingChunks
    window: int
    limit: int
    pace: PaceTracker
    sent: dict[int, Chunk] = field(default_factory=dict)
    abandoned: deque[Chunk] = field(default_factory=deque)
    abandoned_units: int = 0
    is_lost: bool = False
    busy_since: float = 0.0
    done: int = 0
    pending: int = 0

    @property
    def share(self) -> int:
        """Units done, pending and abandoned. O(1): progress is reported for every device."""
        return self.done + self.pending + self.abandoned_units

    @property
    def has_room(self) -> bool:
        """Whether another chunk may be sent."""
        return not self.is_lost and len(self.sent) < self.window

    @property
    def is_stealable(self) -> bool:
        """Whether units can be stolen with one chunk remaining."""
        return len(self.waiting) > 1 or (len(self.waiting) == 1 and self.waiting.first().count > 1)

    @property
    def in_flight(self) -> int:
        """Units of the chunk expected to finish next; 0 if none was sent."""
        return next((chunk.count for chunk in self.sent.values()), 0)

    def expected_finish(self, now: float, tail_units: int = 0) -> ExpectedFinish | None:
        """Predict when all its chunks will be done; None while its pace is unknown.

        `tail_units`: what it is expected to take of a tail.
        """
        pace = self.pace.seconds_per_unit(now, self.in_flight)
        end = self.pace.expected_end(now, self.in_flight, self.pending + tail_units)
        return None if pace is None or end is None else ExpectedFinish(end, pace)

    def send(self, chunk: Chunk, now: float) -> None:
        """Record that `chunk` was sent."""
        if not self.sent:
            self.busy_since = now
            self.pace.resume(now)
        self.sent[chunk.id] = chunk

    def finish(self, units: int, now: float) -> None:
        """Record a finished chunk of so many units."""
        self.busy_since = now
        self.done += units
        self.pace.record(units, now)

    def abandon(self) -> None:
        """Mark the device as lost and its unfinished chunks as abandoned."""
        self.is_lost = True
        self.abandoned.extend([*self.sent.values(), *self.waiting.clear()])
        self.sent.clear()
        self.abandoned_units += self.pending
        self.pending = 0

    def abandon_units(self, chunk: Chunk) -> None:
        """Add a chunk to the abandoned ones: of a tail whose process has ended."""
        self.abandoned.append(chunk)
        self.abandoned_units += chunk.count

    def remove_abandoned(self, chunk_id: int) -> Chunk | None:
        """Remove and return an abandoned chunk; None if it isn't there."""
        for chunk in self.abandoned:
            if chunk.id == chunk_id:
                self.abandoned.remove(chunk)
                self.abandoned_units -= chunk.count
                return chunk
        return None

    def take_abandoned(self, limit: int, new_ids: Iterator[int]) -> Chunk:
        """Remove and return at most `limit` units of the oldest abandoned chunk.

        `new_ids`: for the rest, if the chunk is divided.
        """
        chunk = self.abandoned.popleft()
        count = min(chunk.count, limit)
        if count < chunk.count:
            rest = Chunk(next(new_ids), chunk.first + count, chunk.count - count)
            self.abandoned.appendleft(rest)
        self.abandoned_units -= count
        return msgspec.structs.replace(chunk, count=count)

    def split_off(self, units: int, chunk_id: int) -> Chunk:
        """Remove at most `units` from the end of the waiting chunks, for another device.

        One chunk remains, marked `last`, so that its result isn't held back for a further chunk.
        `chunk_id`: the id of the new chunk if the final chunk is divided.
        """
        final = self.waiting.pop()
        if units >= final.count and self.waiting:
            removed = final
            final = self.waiting.pop()
        else:
            remaining = max(final.count - units, 1)
            removed = Chunk(chunk_id, final.first + remaining, final.count - remaining)
            final = msgspec.structs.replace(final, count=remaining)
        self.waiting.replace_last(msgspec.structs.replace(final, last=True))
        self.pending -= removed.count
        return msgspec.structs.replace(removed, barrier=False, last=True, kernel=0)
