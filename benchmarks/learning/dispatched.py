"""A plan for cores, run by the product's dispatcher in virtual time.

Unlike `machine.play`, which runs each share on its own device, units move: by stealing, and by
the tails that cores share. The dispatcher, the rule of taking and the plan are the product's; only
the seconds of chunks are given.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from hetsched.device import TAIL_CHUNK_ID, Chunk, ChunkTimes, TailCounter, TailPart
from hetsched.dispatch import Dispatcher, Send
from hetsched.planner.records import JobPlan
from hetsched.simulate.machine import ChunkTimings

MESSAGE_SECONDS, TAKE_SECONDS = 200e-6, 50e-6
"""From a device to the engine, or back. Estimate."""

ChunkSeconds = Callable[[Chunk, float], float]
"""Seconds of a chunk that starts at a time."""


@dataclass
class _Core:
    """One core. `tail`: what it may take once `is_open`."""

    seconds: ChunkSeconds
    tail: TailPart | None
    counter: TailCounter | None
    chunks: deque[Chunk] = field(default_factory=deque)
    is_open: bool = False
    is_busy: bool = False
    timings: list[tuple[int, ChunkTimes]] = field(default_factory=list)

    def next_chunk(self) -> Chunk | None:
        """Return the next chunk: one that was sent, or one of the tail; None: it is idle."""
        if self.chunks:
            return self.chunks.popleft()
        taken = None
        if self.is_open and self.counter is not None and self.tail is not None:
            taken = self.counter.take(self.tail)
        return None if taken is None else Chunk(TAIL_CHUNK_ID, *taken)


class _Run:
    """One run; `events` are calls at a time."""

    def __init__(self, plan: JobPlan, seconds: Mapping[str, ChunkSeconds]) -> None:
        assignments = plan.assignments
        tails = {a.device: a.tail for a in assignments if a.tail is not None}
        counters = {tail.first: TailCounter(tail.first, tail.units) for tail in tails.values()}
        self._cores = {
            a.device: _Core(
                seconds[a.device], a.tail, None if a.tail is None else counters[a.tail.first]
            )
            for a in assignments
        }
        self._dispatcher = Dispatcher(
            {a.device: a.chunks for a in assignments},
            {a.device: a.window for a in assignments},
            {a.device: a.max_chunk for a in assignments},
            {a.device: a.pace for a in assignments},
            tails,
        )
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers = itertools.count()

    def run(self) -> dict[str, ChunkTimings]:
        for command in self._dispatcher.commands(0.0):
            self._at(0.0, partial(self._receive, command))
        while self._events:
            now, _, action = heapq.heappop(self._events)
            action(now)
        return {name: tuple(core.timings) for name, core in self._cores.items() if core.timings}

    def _at(self, time: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), action))

    def _receive(self, command: Send, now: float) -> None:
        core = self._cores[command.device]
        core.chunks.extend(command.chunks)
        core.is_open = core.is_open or command.opens_tail
        if not core.is_busy:
            self._advance(command.device, now)

    def _advance(self, name: str, now: float) -> None:
        core = self._cores[name]
        chunk = core.next_chunk()
        core.is_busy = chunk is not None
        if chunk is None:
            if core.is_open:
                core.is_open = False
                self._report(lambda _: self._dispatcher.leave_tail(name), now)
            return
        is_taken = chunk.id == TAIL_CHUNK_ID
        start = now + TAKE_SECONDS if is_taken else now
        end = start + core.seconds(chunk, start)
        core.timings.append((chunk.count, ChunkTimes(compute=(start, end), taken=is_taken)))
        self._at(end, lambda time: self._finish(name, chunk, time))

    def _finish(self, name: str, chunk: Chunk, now: float) -> None:
        def record(time: float) -> None:
            if chunk.id == TAIL_CHUNK_ID:
                self._dispatcher.finish_tail_chunk(name, chunk.first, chunk.count, time)
            else:
                self._dispatcher.finish_chunk(name, chunk.id, time)

        self._report(record, now)
        self._advance(name, now)

    def _report(self, record: Callable[[float], object], now: float) -> None:
        def arrive(time: float) -> None:
            record(time)
            for command in self._dispatcher.commands(time):
                self._at(time + MESSAGE_SECONDS, partial(self._receive, command))

        self._at(now + MESSAGE_SECONDS, arrive)


def run_dispatched(plan: JobPlan, seconds: Mapping[str, ChunkSeconds]) -> dict[str, ChunkTimings]:
    """Return the timings of each device that computed, in the order in which its chunks ran.

    `plan` is for devices without a link; `seconds`: of the chunks of each device.
    """
    return _Run(plan, seconds).run()
