"""Who gets which chunk next: events in, commands out. No clock, no socket.

Chunks wait here, not at the devices: a device is sent a window of them ahead, nothing that was
sent is revoked, and a chunk that has finished is never sent again. What a lost device had not
finished goes to a pool, from which devices without chunks of their own take. Every sending from
the pool has an id of its own: a late answer of a dead process can't be taken for a new one.
When the pool is empty too, they may steal from the end of what waits for another device.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hetsched.device import Chunk
from hetsched.dispatch.stealing import Outlook, Progress, units_to_take
from hetsched.job import DeviceProgress

# events


@dataclass(frozen=True)
class Started:
    """All devices are ready. Before it nothing is sent."""


@dataclass(frozen=True)
class ChunkFinished:
    """`device` is through with the chunk of id `chunk`."""

    device: str
    chunk: int


@dataclass(frozen=True)
class DeviceLost:
    device: str


@dataclass(frozen=True)
class DeviceJoined:
    """A device that was lost is back, and holds nothing."""

    device: str


Event = Started | ChunkFinished | DeviceLost | DeviceJoined


# commands


@dataclass(frozen=True)
class Send:
    device: str
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class Finished:
    """Every unit is done; said once."""


Command = Send | Finished


@dataclass
class _Queue:
    """One device: its `waiting` chunks, those `sent`, and what it `left` when it was lost."""

    waiting: deque[Chunk]
    window: int
    limit: int
    progress: Progress
    sent: dict[int, Chunk] = field(default_factory=dict)
    left: deque[Chunk] = field(default_factory=deque)
    lost: bool = False
    done: int = 0
    ahead: int = 0
    """Units waiting and sent: counted on, for at each event every device is looked at."""

    @property
    def share(self) -> int:
        """Units done, and units that are still this device's to do."""
        open_chunks = itertools.chain(self.waiting, self.sent.values(), self.left)
        return self.done + sum(chunk.count for chunk in open_chunks)

    @property
    def flying(self) -> int:
        """Units of the chunk that is expected to be finished next; 0 if none was sent."""
        return next((chunk.count for chunk in self.sent.values()), 0)

    def outlook(self, now: float) -> Outlook | None:
        """When it will be through with all that it has; None: nobody knows."""
        pace = self.progress.pace(now, self.flying)
        ends = self.progress.ends(now, self.flying, self.ahead)
        return None if pace is None or ends is None else Outlook(ends, pace)

    def give(self, units: int, number: int) -> Chunk:
        """At most `units` from the end of what waits, as a chunk for another device.

        One chunk stays, marked `last`: no result is held back for one that doesn't come.
        `number`: its id if the final chunk is divided.
        """
        final = self.waiting.pop()
        if units >= final.count and self.waiting:
            given = final
            final = self.waiting.pop()
        else:
            kept = max(final.count - units, 1)
            given = Chunk(number, final.first + kept, final.count - kept)
            final = msgspec.structs.replace(final, count=kept)
        self.waiting.append(msgspec.structs.replace(final, last=True))
        self.ahead -= given.count
        return msgspec.structs.replace(given, barrier=False, last=True)

    @property
    def stealable(self) -> bool:
        """Whether something may be taken and one chunk stays."""
        return len(self.waiting) > 1 or (len(self.waiting) == 1 and self.waiting[0].count > 1)


class Dispatch:
    """Hands the chunks of one run to its devices.

    Parameters
    ----------
    queues : mapping
        Device -> its chunks in order; ids are unique across all devices.
    windows : mapping
        Device -> how many chunks it may have at once.
    limits : mapping, units
        Device -> the largest chunk it takes; chunks of others are split to that.
    paces : mapping, seconds/unit, optional
        Device -> what a unit of its share should take, None if nobody knows. Without the mapping
        nothing is stolen.
    """

    def __init__(
        self,
        queues: Mapping[str, Sequence[Chunk]],
        windows: Mapping[str, int],
        limits: Mapping[str, int],
        paces: Mapping[str, float | None] | None = None,
    ) -> None:
        self._steals = paces is not None
        planned = paces or {}
        self._devices = {
            device: _Queue(
                deque(queues.get(device, ())),
                window,
                limits[device],
                Progress(planned.get(device)),
                ahead=sum(chunk.count for chunk in queues.get(device, ())),
            )
            for device, window in windows.items()
        }
        ids = [chunk.id for queue in queues.values() for chunk in queue]
        self._fresh = itertools.count(max(ids, default=-1) + 1)
        self._remaining = sum(chunk.count for queue in queues.values() for chunk in queue)
        self._started = self._over = False
        self._left = 0
        """Units that lost devices left."""
        self._victims: list[tuple[Outlook, _Queue]] | None = None
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            Started: self._on_started,
            ChunkFinished: self._on_finished,
            DeviceLost: self._on_lost,
            DeviceJoined: self._on_joined,
        }

    def handle(self, event: Event, now: float) -> list[Command]:
        """What to do about `event`; `now` in seconds, for policies that weigh time.

        Events that no longer mean anything (a late answer, a second loss) are without effect.
        """
        if self._over:
            return []
        self._handlers[type(event)](event, now)
        return self._commands(now)

    def done_units(self, device: str) -> int:
        """Units that `device` has finished."""
        return self._devices[device].done

    def progress(self) -> tuple[DeviceProgress, ...]:
        """Each device's units, done and in all; together always the whole load. O(open chunks)."""
        return tuple(
            DeviceProgress(name, queue.done, queue.share) for name, queue in self._devices.items()
        )

    # ---- events

    def _on_started(self, event: Started, now: float) -> None:
        self._started = True

    def _on_finished(self, event: ChunkFinished, now: float) -> None:
        queue = self._devices[event.device]
        chunk = queue.sent.pop(event.chunk, None)
        if chunk is not None:
            queue.ahead -= chunk.count
        else:
            chunk = _taken(queue.left, event.chunk)  # it ended before the loss was seen
            self._left -= 0 if chunk is None else chunk.count
        if chunk is not None:
            queue.done += chunk.count
            queue.progress.finished(chunk.count, now)
            self._remaining -= chunk.count

    def _on_lost(self, event: DeviceLost, now: float) -> None:
        queue = self._devices[event.device]
        queue.lost = True
        queue.left.extend([*queue.sent.values(), *queue.waiting])
        queue.sent.clear()
        queue.waiting.clear()
        self._left += queue.ahead
        queue.ahead = 0

    def _on_joined(self, event: DeviceJoined, now: float) -> None:
        self._devices[event.device].lost = False

    # ---- commands

    def _commands(self, now: float) -> list[Command]:
        if not self._started:
            return []
        if self._remaining == 0:
            self._over = True
            return [Finished()]
        self._victims = None
        sends = ((device, self._refill(device, now)) for device in self._devices)
        return [Send(device, chunks) for device, chunks in sends if chunks]

    def _refill(self, device: str, now: float) -> tuple[Chunk, ...]:
        """The chunks that fill up the window of `device`, noted as sent."""
        queue = self._devices[device]
        chunks = []
        while not queue.lost and len(queue.sent) < queue.window:
            chunk = queue.waiting.popleft() if queue.waiting else self._for_idle(device, now)
            if chunk is None:
                break
            if not queue.sent:
                queue.progress.resumed(now)
            queue.sent[chunk.id] = chunk
            chunks.append(chunk)
        return tuple(chunks)

    def _for_idle(self, device: str, now: float) -> Chunk | None:
        """Policy: a chunk for a device with room and no chunks of its own left.

        What it left itself first, then what others left, then what pays to be stolen.
        """
        own = self._devices[device]
        if self._left:
            queues = (own, *self._devices.values())
            found = self._take(next(queue.left for queue in queues if queue.left), own.limit)
            self._left -= found.count
            own.ahead += found.count
            return found
        stolen = self._steal(own, now) if self._steals else None
        own.ahead += 0 if stolen is None else stolen.count
        return stolen

    def _steal(self, own: _Queue, now: float) -> Chunk | None:
        """From the end of the share of the device now expected to finish last, if that pays."""
        victim, queue = self._latest(now)
        thief = own.outlook(now) if queue is not None and queue is not own else None
        if victim is None or queue is None or thief is None:
            return None
        if not own.sent:
            thief = Outlook(now, max(thief.pace, own.progress.alone or 0.0))
        units = min(units_to_take(now, thief, victim), own.limit)
        if not units:
            return None
        self._victims = None
        return queue.give(units, next(self._fresh))

    def _latest(self, now: float) -> tuple[Outlook, _Queue] | tuple[None, None]:
        """The device that ends last of those from which may be taken.

        Looked for once an event and theft: all that are idle ask for it.
        """
        if self._victims is None or not all(queue.stealable for _, queue in self._victims):
            outlooks = [
                (outlook, queue)
                for queue in self._devices.values()
                if queue.stealable and (outlook := queue.outlook(now)) is not None
            ]
            self._victims = [max(outlooks, key=lambda one: one[0].ends)] if outlooks else []
        return self._victims[0] if self._victims else (None, None)

    def _take(self, left: deque[Chunk], limit: int) -> Chunk:
        """The first units of `left`, at most `limit`, as a chunk for any device.

        Always marked `last`: somebody else may take what follows, and a single copy engine would
        hold this chunk's result back for ever.
        """
        whole = left.popleft()
        count = min(whole.count, limit)
        if count < whole.count:
            rest = Chunk(next(self._fresh), whole.first + count, whole.count - count)
            left.appendleft(rest)
        return msgspec.structs.replace(
            whole, id=next(self._fresh), count=count, barrier=False, last=True
        )


def _taken(left: deque[Chunk], number: int) -> Chunk | None:
    """The chunk of id `number`, taken out of `left`; None if it isn't there."""
    for chunk in left:
        if chunk.id == number:
            left.remove(chunk)
            return chunk
    return None
