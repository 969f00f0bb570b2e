"""Cores on virtual time that compute one large job and small ones, by the rules of the product."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hetsched.device import Chunk
from hetsched.device_process.turns import Turns
from hetsched.dispatch.commands import Command, Send
from hetsched.dispatch.dispatcher import Dispatcher
from hetsched.dispatch.events import ChunkFinished, Started
from hetsched.engine.concurrency.small_job_rule import Outlook, SmallJobRule

CHUNK_SECONDS = 0.08
SWITCH_SECONDS = 50e-6
"""To prepare a core for another job."""
NOISE = 0.1


@dataclass(frozen=True)
class Work:
    """A chunk of the main job, or a whole side job."""

    seconds: float
    is_side: bool
    number: int


@dataclass
class Core:
    name: str
    turns: Turns = field(default_factory=Turns)
    main: deque[Work] = field(default_factory=deque)
    side: deque[Work] = field(default_factory=deque)
    current: Work | None = None
    last_was_side: bool = False


@dataclass
class Outcome:
    """`waits`: seconds from submission to start, per small job that ran beside the main one."""

    main_end: float = 0.0
    waits: list[float] = field(default_factory=list)
    unstarted: int = 0


class SharedCores:
    """One main job of `seconds` of work per core, and small jobs at given times.

    Parameters
    ----------
    small : list of (float, float), seconds
        When each small job is submitted, and its work.
    """

    def __init__(
        self, cores: int, seconds: float, small: list[tuple[float, float]], seed: int = 0
    ) -> None:
        self._random = random.Random(seed)
        self._cores = {f"cpu{i}": Core(f"cpu{i}") for i in range(cores)}
        self._unit = CHUNK_SECONDS / 8
        ids = itertools.count()
        units = max(1, round(seconds / self._unit))
        queues = {
            name: [Chunk(next(ids), first, min(8, units - first)) for first in range(0, units, 8)]
            for name in self._cores
        }
        names = list(self._cores)
        self._main = Dispatcher(
            queues,
            dict.fromkeys(names, 2),
            dict.fromkeys(names, 8),
            dict.fromkeys(names, self._unit),
        )
        self._rule = SmallJobRule()
        self._rule.begin(0)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._now = 0.0
        self._waiting: deque[tuple[int, float, float]] = deque()
        self._is_done = False
        self._submitted: dict[int, float] = {}
        self.outcome = Outcome()
        for number, (time, work) in enumerate(small, 1):
            self._at(time, lambda number=number, work=work: self._submit(number, work))

    def run(self) -> Outcome:
        self._execute(self._main.handle(Started(), 0.0))
        while self._events:
            self._now, _, callback = heapq.heappop(self._events)
            callback()
        self.outcome.unstarted = len(self._waiting)
        return self.outcome

    def _at(self, time: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), callback))

    def _submit(self, number: int, work: float) -> None:
        self._waiting.append((number, self._now, work))
        self._consider()

    def _consider(self) -> None:
        remaining = self._main.remaining_seconds(self._now)
        while self._waiting and not self._is_done and remaining is not None:
            ends = self._main.chunk_ends(self._now)
            waits = {name: end - self._now for name, end in ends.items()}
            if not Outlook(0, remaining, waits).is_long:
                return
            core = self._rule.core(list(self._cores), waits)
            number, submitted, work = self._waiting[0]
            if core is None or not self._rule.admits(work, None, remaining):
                return
            self._waiting.popleft()
            self._rule.start(number, core, work, is_guess=False)
            self._cores[core].side.append(Work(work, True, number))
            self._submitted[number] = submitted
            self._advance(self._cores[core])

    def _execute(self, commands: list[Command]) -> None:
        for command in commands:
            if not isinstance(command, Send):
                self._is_done = True
                self.outcome.main_end = self._now
                continue
            core = self._cores[command.device]
            for chunk in command.chunks:
                noise = 1 + NOISE * (2 * self._random.random() - 1)
                core.main.append(Work(chunk.count * self._unit * noise, False, chunk.id))
            self._advance(core)

    def _advance(self, core: Core) -> None:
        if core.current is not None:
            return
        candidates = [queue[0] for queue in (core.main, core.side) if queue]
        work = core.turns.choose(candidates)
        if work is None:
            return
        (core.side if work.is_side else core.main).popleft()
        core.current = work
        if work.is_side:
            self.outcome.waits.append(self._now - self._submitted[work.number])
        switch = SWITCH_SECONDS if work.is_side != core.last_was_side else 0.0
        core.last_was_side = work.is_side
        has_main = bool(core.main)
        self._at(self._now + switch + work.seconds, lambda: self._end(core, work, has_main))

    def _end(self, core: Core, work: Work, has_main: bool) -> None:
        core.current = None
        core.turns.record(work, work.seconds, has_waiting_main=has_main)
        if work.is_side:
            self._rule.end(work.number)
        else:
            self._execute(self._main.handle(ChunkFinished(core.name, work.number), self._now))
        self._advance(core)
        self._consider()
