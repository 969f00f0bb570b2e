"""The dispatcher: which device runs which chunk next. No clock, no socket.

Chunks wait here, not at the devices: each device is sent a window of chunks ahead, nothing sent is
revoked, and a finished chunk is never sent again. The unfinished chunks of a lost device go to a
pool for devices without waiting chunks. Each chunk sent from the pool has a new id, so a late
answer of a dead process can't be mistaken for its successor's. If the pool is empty too, idle
devices may steal from the end of another device's waiting chunks.

Cores may share a tail, which they take without the dispatcher: it allows a core to
do so with the last of the core's chunks, and counts what they report (`tail_progress`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hetsched.device import Chunk, TailPart
from hetsched.dispatch.device_queue import (
    DeviceQueue,
    ExpectedFinish,
    PaceTracker,
    WaitingChunks,
    largest_id,
    total_units,
    units_to_steal,
)
from hetsched.dispatch.tail_progress import group_tails
from hetsched.job import DeviceProgress


class Started(msgspec.Struct, frozen=True):
    """The run begins: nothing is sent before this event."""


class ChunkFinished(msgspec.Struct, frozen=True):
    """`device` has finished the chunk with id `chunk`."""

    device: str
    chunk: int


class TailChunkFinished(msgspec.Struct, frozen=True):
    """`device` has finished `count` units of its tail from unit `first` on."""

    device: str
    first: int
    count: int


class TailLeft(msgspec.Struct, frozen=True):
    """Nothing of its tail remains for `device`."""

    device: str


class DeviceLost(msgspec.Struct, frozen=True):
    """The process of `device` has died."""

    device: str


class DeviceJoined(msgspec.Struct, frozen=True):
    """A lost device is back, without chunks."""

    device: str


Event = Started | ChunkFinished | TailChunkFinished | TailLeft | DeviceLost | DeviceJoined


class Send(msgspec.Struct, frozen=True):
    """Send `chunks` to `device`, in this order.

    `opens_tail`: after them it takes chunks of its tail.
    """

    device: str
    chunks: tuple[Chunk, ...]
    opens_tail: bool = False


class Finished(msgspec.Struct, frozen=True):
    """Every unit is done; issued once."""


Command = Send | Finished


Victim = tuple[ExpectedFinish, DeviceQueue]
"""The device expected to finish last among those with stealable units, and its finish time."""


class Dispatcher:
    """The assignment of one run's chunks to devices, as a state machine.

    Parameters
    ----------
    queues : mapping
        Device -> its chunks in order; ids are unique across all devices.
    windows : mapping
        Device -> maximum number of chunks sent but not finished.
    limits : mapping, units
        Device -> the largest chunk that it can run; larger chunks of other devices are divided.
    paces : mapping, seconds/unit, optional
        Device -> the planned time of a unit of its share, None if unknown. Without the mapping
        there is no stealing.
    tails : mapping, optional
        Device -> its part of the tail that it shares with others; no tail without an entry.
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
        self._new_ids = itertools.count(max(map(largest_id, queues.values()), default=-1) + 1)
        self._tails = group_tails(tails or {})
        own = sum(map(total_units, queues.values()))
        self._unfinished = own + sum(tail.unfinished for tail in set(self._tails.values()))
        self._has_started = self._has_finished = False
        self._pool = 0
        """Units that lost devices abandoned."""
        self._victim: Victim | None = None
        self._is_victim_current = False
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            Started: self._on_started,
            ChunkFinished: self._on_chunk_finished,
            TailChunkFinished: self._on_tail_chunk_finished,
            TailLeft: self._on_tail_left,
            DeviceLost: self._on_device_lost,
            DeviceJoined: self._on_device_joined,
        }

    def handle(self, event: Event, now: float) -> list[Command]:
        """Return the commands that follow from `event`; `now` in seconds.

        Obsolete events (a late answer, a second loss) have no effect.
        """
        return self.handle_together((event,), now)

    def handle_together(self, events: Iterable[Event], now: float) -> list[Command]:
        """As `handle`, for events that are known at once: decides only after the last."""
        if self._has_finished:
            return []
        for event in events:
            self._handlers[type(event)](event, now)
        return self._commands(now)

    def done_units(self, device: str) -> int:
        """Return the units that `device` has finished."""
        return self._queues[device].done

    def progress(self) -> tuple[DeviceProgress, ...]:
        """Return each device's units, done and total; totals sum to the load. O(devices)."""
        return tuple(
            DeviceProgress(name, queue.done, queue.share + self._expected_tail(name))
            for name, queue in self._queues.items()
        )

    def oldest_sent(self) -> Iterator[tuple[str, Chunk, float]]:
        """Yield each device that has chunks, the oldest, and when it can have started that.

        For a device that takes chunks of a tail: one as large as the present one can be.
        """
        for device, queue in self._queues.items():
            chunk = next(iter(queue.sent.values()), None)
            if chunk is None and self._is_taking(device):
                chunk = self._tails[device].largest_chunk(device)
            if chunk is not None:
                yield device, chunk, queue.busy_since

    def measured_pace(self, device: str) -> float | None:
        """Return the present seconds per unit of `device`; None before its first chunk."""
        return self._queues[device].pace.latest

    def measured_paces(self) -> list[float]:
        """Return the present seconds per unit of all devices that have finished a chunk."""
        paces = (queue.pace.latest for queue in self._queues.values())
        return [pace for pace in paces if pace is not None]

    def unit_seconds(self, now: float) -> dict[str, float]:
        """Return the present pace of each device that isn't lost, seconds/unit, if known."""
        paces = {
            name: queue.pace.seconds_per_unit(now, queue.in_flight)
            for name, queue in self._queues.items()
            if not queue.is_lost
        }
        return {name: pace for name, pace in paces.items() if pace}

    def remaining_seconds(self, now: float) -> float | None:
        """Predict the time until all units are done, if balanced; None while no pace is known."""
        paces = self.unit_seconds(now)
        if not paces:
            return None
        return self._unfinished / sum(1 / pace for pace in paces.values())

    def busy_devices(self) -> frozenset[str]:
        """Return the devices with unfinished chunks."""
        return frozenset(
            name for name, queue in self._queues.items() if queue.pending or self._is_taking(name)
        )

    # ---- events

    def _on_started(self, event: Started, now: float) -> None:
        self._has_started = True

    def _on_chunk_finished(self, event: ChunkFinished, now: float) -> None:
        queue = self._queues[event.device]
        chunk = queue.sent.pop(event.chunk, None)
        if chunk is not None:
            queue.pending -= chunk.count
        else:
            # It may have finished before its device's loss was detected.
            chunk = queue.remove_abandoned(event.chunk)
            self._pool -= 0 if chunk is None else chunk.count
        if chunk is not None:
            queue.finish(chunk.count, now)
            self._unfinished -= chunk.count

    def _on_tail_chunk_finished(self, event: TailChunkFinished, now: float) -> None:
        tail = self._tails.get(event.device)
        if tail is not None and tail.finish(event.first, event.count):
            self._queues[event.device].finish(event.count, now)
            self._unfinished -= event.count

    def _on_tail_left(self, event: TailLeft, now: float) -> None:
        self._leave_tail(event.device)

    def _leave_tail(self, device: str) -> None:
        """Let other devices compute what lost ones have taken, when nobody takes any more."""
        tail = self._tails.get(device)
        for first, end in () if tail is None else tail.leave(device):
            self._queues[device].abandon_units(Chunk(next(self._new_ids), first, end - first))
            self._pool += end - first

    def _on_device_lost(self, event: DeviceLost, now: float) -> None:
        queue = self._queues[event.device]
        self._pool += queue.pending
        queue.abandon()
        self._leave_tail(event.device)

    def _on_device_joined(self, event: DeviceJoined, now: float) -> None:
        self._queues[event.device].is_lost = False

    # ---- commands

    def _commands(self, now: float) -> list[Command]:
        if not self._has_started:
            return []
        if self._unfinished == 0:
            self._has_finished = True
            return [Finished()]
        self._is_victim_current = False
        commands: list[Command] = []
        for device, queue in self._queues.items():
            chunks = self._refill(device, queue, now)
            opens_tail = self._opens_tail(device, queue)
            if chunks or opens_tail:
                commands.append(Send(device, chunks, opens_tail))
        return commands

    def _opens_tail(self, device: str, queue: DeviceQueue) -> bool:
        """Return whether the device may take units of its tail from now on."""
        tail = self._tails.get(device)
        if tail is None or queue.is_lost or queue.waiting:
            return False
        return tail.open_for(device)

    def _is_taking(self, device: str) -> bool:
        """Return whether the device may be computing units of a tail."""
        return device in self._tails and self._tails[device].is_taking(device)

    def _expected_tail(self, device: str) -> int:
        """Return the unfinished units that the device is expected to take from its tail."""
        return self._tails[device].expected_units(device) if device in self._tails else 0

    def _refill(self, device: str, queue: DeviceQueue, now: float) -> tuple[Chunk, ...]:
        """Fill up the window of a device; return the chunks to send."""
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
        """Choose a chunk for a device with room and no waiting chunks.

        First chunks that it abandoned itself, then those of others, then chunks worth stealing;
        these not while it may take units of a tail.
        """
        has_tail = device in self._tails and self._tails[device].may_take(device)
        if self._pool:
            chunk: Chunk | None = self._take_from_pool(idle)
        elif self._allows_stealing and not has_tail:
            chunk = self._steal(idle, now)
        else:
            return None
        idle.pending += 0 if chunk is None else chunk.count
        return chunk

    def _take_from_pool(self, idle: DeviceQueue) -> Chunk:
        """Take abandoned units, at most one chunk of the device's limit.

        Always marked `last`: another device may take the following chunk, and a single copy engine
        would then hold this chunk's result back forever.
        """
        queues = (idle, *self._queues.values())
        abandoning = next(queue for queue in queues if queue.abandoned)
        chunk = abandoning.take_abandoned(idle.limit, self._new_ids)
        self._pool -= chunk.count
        return msgspec.structs.replace(
            chunk, id=next(self._new_ids), barrier=False, last=True, kernel=0
        )

    def _steal(self, idle: DeviceQueue, now: float) -> Chunk | None:
        """Take units from the device expected to finish last, if that pays."""
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
        """Return the device expected to finish last among those with stealable units.

        Cached per event and theft, because all idle devices need it.
        """
        if not self._is_victim_current or (self._victim and not self._victim[1].is_stealable):
            self._victim = max(
                (
                    (finish, queue)
                    for name, queue in self._queues.items()
                    if queue.is_stealable
                    and (finish := queue.expected_finish(now, self._expected_tail(name)))
                    is not None
                ),
                key=lambda victim: victim[0].end,
                default=None,
            )
            self._is_victim_current = True
        return self._victim
