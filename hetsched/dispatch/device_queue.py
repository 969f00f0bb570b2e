"""The chunks of one device: waiting, sent, and abandoned when it was lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from hetsched.device import Chunk
from hetsched.dispatch.stealing import ExpectedFinish, PaceTracker
from hetsched.dispatch.waiting_chunks import WaitingChunks


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
