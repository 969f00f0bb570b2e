"""Cores on virtual time that compute one large job and small ones, by the rules of the product."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hetsched.device import Chunk
from hetsched.dispatch.commands import Command, Send
from hetsched.dispatch.dispatcher import Dispatcher
from hetsched.dispatch.events import ChunkFinished, Started
from hetsched.engine.concurrency.small_job_rule import Outlook, SmallJobRule

CHUNK_SECONDS = 0.08
NOISE = 0.1


@dataclass
class Work:
    """A chunk of the main job, or a whole side job. `seconds`: on a core that does only this."""

    number: int
    seconds: float


@dataclass
class Core:
    """A core that the operating system divides between a chunk and a side job.

    `main`: the chunks sent, the first of which is computed. `turn` is a new number after each
    change, so that ends that were expected before it are ignored.
    """

    name: str
    main: deque[Work] = field(default_factory=deque)
    side: Work | None = None
    since: float = 0.0
    turn: int = 0

    @property
    def running(self) -> list[Work]:
        return [*itertools.islice(self.main, 1), *([self.side] if self.side else [])]

    def advance(self, now: float) -> None:
        for work in (running := self.running):
            work.seconds -= (now - self.since) / len(running)
        self.since = now
        self.turn += 1


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
        while self._waiting and not self._is_done:
            remaining = self._main.remaining_seconds(self._now)
            free = sorted(self._rule.free(self._cores))
            busy = self._main.busy_devices()
            if not free or remaining is None or not Outlook(0, remaining, busy).is_long:
                return
            core = self._cores[self._rule.choose(free, busy)]
            number, submitted, work = self._waiting[0]
            if not self._rule.admits(work, None, remaining):
                return
            self._waiting.popleft()
            self._rule.start(number, core.name, work, is_guess=False)
            self.outcome.waits.append(self._now - submitted)
            core.advance(self._now)
            core.side = Work(number, work)
            self._expect_end(core)

    def _execute(self, commands: list[Command]) -> None:
        for command in commands:
            if not isinstance(command, Send):
                self._is_done = True
                self.outcome.main_end = self._now
                continue
            core = self._cores[command.device]
            core.advance(self._now)
            for chunk in command.chunks:
                noise = 1 + NOISE * (2 * self._random.random() - 1)
                core.main.append(Work(chunk.id, chunk.count * self._unit * noise))
            self._expect_end(core)

    def _expect_end(self, core: Core) -> None:
        running, turn = core.running, core.turn
        if not running:
            return
        work = min(running, key=lambda work: work.seconds)
        seconds = max(0.0, work.seconds) * len(running)
        self._at(self._now + seconds, lambda: self._end(core, work, turn))

    def _end(self, core: Core, work: Work, turn: int) -> None:
        if turn != core.turn:
            return
        core.advance(self._now)
        if work is core.side:
            core.side = None
            self._rule.end(work.number)
        else:
            core.main.popleft()
            self._execute(self._main.handle(ChunkFinished(core.name, work.number), self._now))
            core.advance(self._now)
        self._expect_end(core)
        self._consider()
