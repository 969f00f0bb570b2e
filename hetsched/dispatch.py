"""Which device runs which chunk next. Pure: no clock, no socket.

Chunks wait here, not at the devices: each device is sent a window of chunks ahead, nothing sent is
revoked, and a finished chunk is never sent again. The unfinished chunks of a lost device go to a
pool for devices without waiting chunks. Each chunk sent from the pool has a new id, so a late
answer of a dead process can't be mistaken for its successor's. If the pool is empty too, idle
devices may steal from the end of another device's waiting chunks (ours): the paces, planned and
then measured, predict when devices finish, and units move from the one expected to finish last if
that shortens the run noticeably.

Cores may share a tail, which they take without the dispatcher: it allows a core to do so with the
last of the core's chunks, and counts what they report.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hetsched.device import Chunk, EvenChunks, TailPart
from hetsched.job import DeviceProgress
from hetsched.units import Ranges, merged, without


class Send(msgspec.Struct, frozen=True):
    """`opens_tail`: after these chunks it takes those of its tail."""

    device: str
    chunks: tuple[Chunk, ...]
    opens_tail: bool = False


class WaitingChunks:
    """A queue over a sequence of chunks, of which the last may be replaced.

    `EvenChunks` are never expanded here, so that ten thousands that wait cost no memory.
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
        return next(iter(self))

    def popleft(self) -> Chunk:
        if self._next < self._end:
            self._next += 1
            return self._chunks[self._next - 1]
        return self.pop()

    def pop(self) -> Chunk:
        final, self._final = self._final, None
        if final is not None:
            return final
        if self._next == self._end:
            raise IndexError("no chunk waits")
        self._end -= 1
        return self._chunks[self._end]

    def replace_last(self, chunk: Chunk) -> None:
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


def total_units(chunks: Sequence[Chunk]) -> int:
    if isinstance(chunks, EvenChunks):
        return chunks.units
    return sum([chunk.count for chunk in chunks])


FIRST_NEW_ID = 1 << 40
"""Of chunks that the dispatcher makes: beyond those of any plan."""
MIN_GAIN = 0.1
"""Fraction of the remaining time that stealing must gain: less is within the noise of paces."""
RECENT_CHUNKS = 4
"""Latest chunks that determine the pace, few enough to detect a slowdown soon."""


@dataclass(frozen=True)
class ExpectedFinish:
    """When a device is predicted to finish, and its seconds per unit."""

    end: float
    pace: float


@dataclass
class PaceTracker:
    """Seconds per unit of one device, planned and then measured."""

    planned: float | None
    # When the first chunk was sent
    started: float | None = None
    # Of the first chunk, which overlaps with no other; or of those reported together with it
    first_chunk: float | None = None
    # Of the latest chunks
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
        """`in_flight`: units of the chunk expected to finish next, which may already be late."""
        pace = self.measured
        if pace is None:
            pace = self.planned if self.planned is not None else self.first_chunk
        if pace is not None and in_flight and self.started is not None:
            pace = max(pace, (now - self._last_mark) / in_flight)
        return pace

    def expected_finish(self, now: float, in_flight: int, units: int) -> ExpectedFinish | None:
        """`units`: with those in flight."""
        pace = self.seconds_per_unit(now, in_flight)
        if pace is None:
            return None
        begin = self._last_mark if in_flight else now
        return ExpectedFinish(max(now, begin + units * pace), pace)

    @property
    def _last_mark(self) -> float:
        return self._marks[-1][0] if self._marks else self.started or 0.0


def units_to_steal(now: float, thief: ExpectedFinish, victim: ExpectedFinish) -> int:
    """Return units to move so that both finish together; 0: no gain."""
    difference = victim.end - thief.end
    units = int(difference / (thief.pace + victim.pace)) if victim.pace > 0 else 0
    end = max(thief.end + units * thief.pace, victim.end - units * victim.pace)
    return units if units and victim.end - end >= MIN_GAIN * (victim.end - now) else 0


@dataclass
class DeviceQueue:
    """One device and its chunks. `limit`: the units of the largest one that it can run."""

    waiting: WaitingChunks
    window: int
    limit: int
    pace: PaceTracker
    # At the device, by id, oldest first; when that can have started
    sent: dict[int, Chunk] = field(default_factory=dict)
    is_lost: bool = False
    busy_since: float = 0.0
    # Units finished; waiting or sent; in the pool since the device was lost. Kept as sums,
    # because each event reads them for every device
    done: int = 0
    pending: int = 0
    abandoned: int = 0

    @property
    def has_room(self) -> bool:
        return not self.is_lost and len(self.sent) < self.window

    @property
    def is_stealable(self) -> bool:
        return len(self.waiting) > 1 or (len(self.waiting) == 1 and self.waiting.first().count > 1)

    @property
    def in_flight(self) -> int:
        """Units of the chunk expected to finish next; 0 if none was sent."""
        return next((chunk.count for chunk in self.sent.values()), 0)

    def expected_finish(self, now: float, tail_units: int = 0) -> ExpectedFinish | None:
        """`tail_units`: what it is expected to take of a tail."""
        return self.pace.expected_finish(now, self.in_flight, self.pending + tail_units)

    def send(self, chunk: Chunk, now: float) -> None:
        if not self.sent:
            self.busy_since = now
            self.pace.resume(now)
        self.sent[chunk.id] = chunk

    def finish(self, units: int, now: float) -> None:
        self.busy_since = now
        self.done += units
        self.pace.record(units, now)

    def split_off(self, units: int, chunk_id: int) -> Chunk:
        """Remove at most `units` from the end of the waiting chunks, for another device.

        One chunk remains, marked `last`, so that its result isn't held back for a further chunk.
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


Range = tuple[int, int]
"""First unit, and the unit after the last one."""


class TailProgress:
    """The tail that several devices share: which units are done, and who may be taking some.

    Reports arrive out of order, but as every chunk is the next one that nobody has taken, the
    finished ranges soon merge into one. Once it `is_closed` no device takes any more, and what
    lost ones haven't finished is rerun as ordinary chunks.
    """

    def __init__(self, parts: Mapping[str, TailPart]) -> None:
        self._parts = dict(parts)
        tail = next(iter(self._parts.values()), TailPart(0, 0, 0.0))
        self._first, self._end = tail.first, tail.first + tail.units
        self._finished: Ranges = ()
        self._opened: set[str] = set()
        self._left: set[str] = set()
        self.unfinished = tail.units
        self.is_closed = not parts

    def open_for(self, device: str) -> bool:
        """Return whether `device` may take units only from now on."""
        if self.is_closed or device in self._opened or device in self._left:
            return False
        self._opened.add(device)
        return True

    def is_taking(self, device: str) -> bool:
        return not self.is_closed and device in self._opened and device not in self._left

    def may_take(self, device: str) -> bool:
        return not self.is_closed and self.unfinished > 0 and device not in self._left

    def leave(self, device: str) -> list[Range]:
        """Record that nothing remains for `device`; once all left, return what nobody has done."""
        self._left.add(device)
        if self.is_closed or not self._left.issuperset(self._parts):
            return []
        self.is_closed = True
        self.unfinished = 0
        return without(self._first, self._end, self._finished)

    def finish(self, first: int, count: int) -> bool:
        """Record a finished chunk; return whether it counts: not once its units are rerun."""
        if self.is_closed:
            return False
        self._finished = merged([*self._finished, (first, first + count)])
        self.unfinished -= count
        return True

    def largest_chunk(self, device: str) -> Chunk:
        """Return a chunk, of no id, as large as any that `device` may be computing."""
        return Chunk(-1, self._first, self._parts[device].units_to_take(self.unfinished))

    def expected_units(self, device: str) -> int:
        """Return what `device` takes if all are on time; these sum to what is unfinished."""
        before = 0.0
        for name, part in self._parts.items():
            if name == device:
                return self._part_of(before + part.weight) - self._part_of(before)
            before += part.weight
        return 0

    def _part_of(self, weight: float) -> int:
        return round(min(weight, 1.0) * self.unfinished)


def group_tails(parts: Mapping[str, TailPart]) -> dict[str, TailProgress]:
    """Return device -> the progress of its tail; the same one for all devices that share it."""
    groups: dict[int, dict[str, TailPart]] = {}
    for device, part in parts.items():
        groups.setdefault(part.first, {})[device] = part
    tails = [(group, TailProgress(group)) for group in groups.values()]
    return {device: tail for group, tail in tails for device in group}


Victim = tuple[ExpectedFinish, DeviceQueue]
"""The device expected to finish last among those with stealable units, and its finish time."""


class Dispatcher:
    """The assignment of one run's chunks to devices: told what happens, it says what to send.

    What is obsolete has no effect: a late answer, a second loss. `now` is in seconds. All by
    device:

    `queues`: its chunks in order; ids are unique across all devices. `windows`: how many may be
    sent but not finished. `limits`: units of the largest chunk that it can run; larger ones of
    others are divided. `paces`: the planned seconds per unit of its share, None if unknown;
    without the mapping there is no stealing. `tails`: its part of one that it shares.
    """

    def __init__(
        self,
        queues: Mapping[str, Sequence[Chunk]],
        windows: Mapping[str, int],
        limits: Mapping[str, int],
        paces: Mapping[str, float | None] | None = None,
        tails: Mapping[str, TailPart] | None = None,
    ) -> None:
        self._allows_stealing = paces is not None
        planned = paces or {}
        self._queues = {
            device: DeviceQueue(
                WaitingChunks(queues.get(device, ())),
                window,
                limits[device],
                PaceTracker(planned.get(device)),
                pending=total_units(queues.get(device, ())),
            )
            for device, window in windows.items()
        }
        self._tails = dict.fromkeys(windows, TailProgress({})) | group_tails(tails or {})
        own = sum(queue.pending for queue in self._queues.values())
        self._unfinished = own + sum(tail.unfinished for tail in set(self._tails.values()))
        self._new_ids = itertools.count(FIRST_NEW_ID)
        # Chunks of lost devices by id, the oldest first, and whose they were.
        self._pool: dict[int, tuple[DeviceQueue, Chunk]] = {}
        self._victim: Victim | None = None
        self._is_victim_current = False

    def progress(self) -> tuple[DeviceProgress, ...]:
        """Return each device's units, done and total; totals sum to the load. O(devices)."""
        return tuple(
            DeviceProgress(
                name,
                queue.done,
                queue.done
                + queue.pending
                + queue.abandoned
                + self._tails[name].expected_units(name),
            )
            for name, queue in self._queues.items()
        )

    def oldest_sent(self) -> Iterator[tuple[str, Chunk, float]]:
        """Yield each device that has chunks, the oldest, and when it can have started that.

        Of a tail: one as large as the present one can be.
        """
        for device, queue in self._queues.items():
            chunk = next(iter(queue.sent.values()), None)
            if chunk is None and self._tails[device].is_taking(device):
                chunk = self._tails[device].largest_chunk(device)
            if chunk is not None:
                yield device, chunk, queue.busy_since

    def measured_pace(self, device: str) -> float | None:
        return self._queues[device].pace.latest

    def measured_paces(self) -> list[float]:
        paces = (queue.pace.latest for queue in self._queues.values())
        return [pace for pace in paces if pace is not None]

    def remaining_seconds(self, now: float) -> float | None:
        """Predict the time until all units are done, if balanced; None while no pace is known."""
        paces = [
            queue.pace.seconds_per_unit(now, queue.in_flight)
            for queue in self._queues.values()
            if not queue.is_lost
        ]
        speed = sum(1 / pace for pace in paces if pace)
        return self._unfinished / speed if speed else None

    def busy_devices(self) -> frozenset[str]:
        return frozenset(
            name
            for name, queue in self._queues.items()
            if queue.pending or self._tails[name].is_taking(name)
        )

    @property
    def is_finished(self) -> bool:
        return self._unfinished == 0

    # ---- events

    def finish_chunk(self, device: str, number: int, now: float) -> None:
        queue = self._queues[device]
        chunk = queue.sent.pop(number, None)
        if chunk is not None:
            queue.pending -= chunk.count
        elif number in self._pool and self._pool[number][0] is queue:
            # It had finished before its device's loss was detected.
            chunk = self._pool.pop(number)[1]
            queue.abandoned -= chunk.count
        else:
            return
        queue.finish(chunk.count, now)
        self._unfinished -= chunk.count

    def finish_tail_chunk(self, device: str, first: int, count: int, now: float) -> bool:
        """Record finished units of a tail; return whether they count, or run again."""
        counts = self._tails[device].finish(first, count)
        if counts:
            self._queues[device].finish(count, now)
            self._unfinished -= count
        return counts

    def leave_tail(self, device: str) -> None:
        """Record that nothing of its tail remains for `device`, or that it is lost."""
        for first, end in self._tails[device].leave(device):
            chunk = Chunk(next(self._new_ids), first, end - first)
            self._abandon(self._queues[device], chunk)

    def lose(self, device: str) -> None:
        queue = self._queues[device]
        queue.is_lost = True
        for chunk in (*queue.sent.values(), *queue.waiting.clear()):
            self._abandon(queue, chunk)
        queue.sent.clear()
        queue.pending = 0
        self.leave_tail(device)

    def join(self, device: str) -> None:
        self._queues[device].is_lost = False

    def _abandon(self, owner: DeviceQueue, chunk: Chunk) -> None:
        self._pool[chunk.id] = owner, chunk
        owner.abandoned += chunk.count

    # ---- what to send

    def commands(self, now: float) -> list[Send]:
        """Return what to send after all that is known by now; nothing is sent before."""
        if self.is_finished:
            return []
        self._is_victim_current = False
        commands: list[Send] = []
        for device, queue in self._queues.items():
            chunks = self._refill(device, queue, now)
            is_dry = not (queue.is_lost or queue.waiting)
            opens_tail = is_dry and self._tails[device].open_for(device)
            if chunks or opens_tail:
                commands.append(Send(device, chunks, opens_tail))
        return commands

    def _refill(self, device: str, queue: DeviceQueue, now: float) -> tuple[Chunk, ...]:
        chunks = []
        while queue.has_room:
            if queue.waiting:
                chunk: Chunk | None = queue.waiting.popleft()
            else:
                chunk = self._chunk_for_idle(device, queue, now)
            if chunk is None:
                break
            queue.send(chunk, now)
            chunks.append(chunk)
        return tuple(chunks)

    def _chunk_for_idle(self, device: str, idle: DeviceQueue, now: float) -> Chunk | None:
        """Choose abandoned units, or some to steal unless it may take units of a tail."""
        if self._pool:
            chunk: Chunk | None = self._take_from_pool(idle)
        elif self._allows_stealing and not self._tails[device].may_take(device):
            chunk = self._steal(idle, now)
        else:
            return None
        idle.pending += 0 if chunk is None else chunk.count
        return chunk

    def _take_from_pool(self, idle: DeviceQueue) -> Chunk:
        """Take abandoned units, at most one chunk of the device's limit.

        Marked `last`: another device may take the following chunk, and a single copy engine would
        hold this chunk's result back forever.
        """
        owner, chunk = self._pool.pop(next(iter(self._pool)))
        owner.abandoned -= chunk.count
        count = min(chunk.count, idle.limit)
        if count < chunk.count:
            rest = Chunk(next(self._new_ids), chunk.first + count, chunk.count - count)
            self._abandon(owner, rest)
        return Chunk(next(self._new_ids), chunk.first, count, last=True)

    def _steal(self, idle: DeviceQueue, now: float) -> Chunk | None:
        victim = self._last_to_finish(now)
        if victim is None or victim[1] is idle:
            return None
        thief = idle.expected_finish(now)
        if thief is None:
            return None
        if not idle.sent:
            thief = ExpectedFinish(now, max(thief.pace, idle.pace.first_chunk or 0.0))
        finish, queue = victim
        units = min(units_to_steal(now, thief, finish), idle.limit)
        if not units:
            return None
        self._is_victim_current = False
        return queue.split_off(units, next(self._new_ids))

    def _last_to_finish(self, now: float) -> Victim | None:
        """Return the one of those with stealable units; kept for all idle devices of an event."""
        if not self._is_victim_current or (self._victim and not self._victim[1].is_stealable):
            self._victim = max(
                (
                    (finish, queue)
                    for name, queue in self._queues.items()
                    if queue.is_stealable
                    and (
                        finish := queue.expected_finish(
                            now, self._tails[name].expected_units(name)
                        )
                    )
                    is not None
                ),
                key=lambda victim: victim[0].end,
                default=None,
            )
            self._is_victim_current = True
        return self._victim
