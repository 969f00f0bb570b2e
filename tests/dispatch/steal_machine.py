"""Devices of constant speed, driven by a `Dispatcher` in virtual time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dispatch_steps import finish

from hetsched.device import Chunk
from hetsched.dispatch import Dispatcher, Send

Pace = Callable[[float], float]
"""Seconds a unit that begins at a time."""


@dataclass
class Device:
    """One at a time; a chunk by itself takes `fill` times as long until its result is there.

    `holds`: a result comes out only once the next chunk has come in, or the chunk is the last.
    """

    pace: Pace
    share: int
    chunks: int
    window: int = 2
    fill: float = 1.0
    holds: bool = False
    free: float = 0.0


def cut(devices: dict[str, Device]) -> dict[str, list[Chunk]]:
    """Each device's share in so many chunks, the whole load in one row."""
    ids, first = itertools.count(), 0
    queues: dict[str, list[Chunk]] = {}
    for name, device in devices.items():
        count = min(device.chunks, device.share)
        ends = [device.share * k // max(count, 1) for k in range(count + 1)]
        queues[name] = []
        for begin, end in itertools.pairwise(ends):
            queues[name].append(Chunk(next(ids), first + begin, end - begin, last=end == ends[-1]))
        first += device.share
    return queues


@dataclass
class Played:
    makespan: float
    units: list[int]
    """Every unit that was computed, as often as it was."""
    by: dict[str, int]
    """Device -> units that it did."""


def play(
    devices: dict[str, Device],
    planned: Mapping[str, float | None] | None,
    queues: dict[str, list[Chunk]] | None = None,
) -> Played:
    """Run to the end. `planned`: seconds a unit as expected; None: without stealing.

    `queues`: each device's chunks, if its share isn't to be cut evenly.
    """
    queues = cut(devices) if queues is None else queues
    limits = {n: max((c.count for c in queues[n]), default=1) for n in devices}
    windows = {name: device.window for name, device in devices.items()}
    dispatcher = Dispatcher(queues, windows, limits, planned)
    events: list[tuple[float, int, str, Chunk]] = []
    number = itertools.count()
    played = Played(0.0, [], dict.fromkeys(devices, 0))
    waiting: dict[str, tuple[float, Chunk] | None] = dict.fromkeys(devices)

    def receive(name: str, chunk: Chunk, now: float) -> None:
        device = devices[name]
        idle = device.free <= now
        begin = max(device.free, now)
        seconds = chunk.count * device.pace(begin)
        device.free = begin + seconds
        ready = device.free + (seconds * (device.fill - 1) if idle else 0.0)
        held_back = waiting[name]
        if held_back is not None:
            heapq.heappush(events, (max(held_back[0], now), next(number), name, held_back[1]))
        waiting[name] = None
        if device.holds and not chunk.last:
            waiting[name] = (ready, chunk)
        else:
            heapq.heappush(events, (ready, next(number), name, chunk))

    def follow(commands: list[Send], now: float) -> None:
        for command in commands:
            for chunk in command.chunks:
                receive(command.device, chunk, now)

    follow(dispatcher.commands(0.0), 0.0)
    while events:
        now, _, name, chunk = heapq.heappop(events)
        played.units.extend(range(chunk.first, chunk.first + chunk.count))
        played.by[name] += chunk.count
        played.makespan = now
        follow(finish(dispatcher, name, chunk.id, now), now)
    assert dispatcher.is_finished, "results are held back for chunks that don't come"
    return played
