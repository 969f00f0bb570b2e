"""Model of when the operations of an emulated device start and end. Pure: time is a parameter.

Three FIFO streams (copy in, compute, copy out) run on engines: with two copy engines each stream
has an engine, with one the copies share an engine, with none all three share one. The head of an
engine's queue starts when the engine is free, the operations that it depends on have ended, and
its earliest start has passed. While copies run in both directions, each is slowed to a configured
fraction of its full pace (a fluid model).

Both clocks use this model: the virtual clock advances it to the operation that is waited for, the
real clock to the present.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

_ENGINE_OF_PHASE = {
    2: {"h2d": 0, "compute": 1, "d2h": 2},
    1: {"h2d": 0, "compute": 1, "d2h": 0},
    0: {"h2d": 0, "compute": 0, "d2h": 0},
}
_OPPOSITE = {"h2d": "d2h", "d2h": "h2d"}


def _nothing() -> None:
    pass


@dataclass(eq=False)
class Operation:
    """One copy or computation: phase "h2d", "compute" or "d2h", with its seconds at full pace."""

    phase: str
    seconds: float
    work: Callable[[], None] = _nothing
    after: Sequence[Operation] = ()
    """What must have ended before it starts."""
    earliest_start: float = 0.0
    targets: Sequence[np.ndarray] = ()
    """What it writes, if that is known."""
    is_ready: bool = True
    """Its real work is done; until then it can't end."""
    is_late: bool = False
    started: float | None = None
    ended: float | None = None
    error: Exception | None = None
    """Raised by its work, or by that of an operation before it."""
    remaining: float = field(default=0.0, init=False)
    """Seconds at full pace that remained at `since`; since then time has passed at `pace`."""
    since: float = field(default=0.0, init=False)
    pace: float = field(default=1.0, init=False)

    def projected_end(self) -> float | None:
        """Return when it ends; None: it is overdue, and ends once its work is done."""
        is_overdue = self.is_late and not self.is_ready
        return None if is_overdue else self.since + self.remaining / self.pace

    def perform(self) -> None:
        """Do the real work, unless an operation before it failed; drop the arrays."""
        self.error = next((before.error for before in self.after if before.error), None)
        try:
            if self.error is None:
                self.work()
        except Exception as error:
            self.error = error
        self.work, self.targets = _nothing, ()


class Engines:
    """`duplex`: what copies in and out keep of their pace while the other direction is busy."""

    def __init__(self, engines: int, duplex: tuple[float, float]) -> None:
        self._engine_of = _ENGINE_OF_PHASE[engines]
        self._duplex = {"h2d": duplex[0], "d2h": duplex[1], "compute": 1.0}
        self.count = count = max(self._engine_of.values()) + 1
        self._queues: list[deque[Operation]] = [deque() for _ in range(count)]
        self._active: list[Operation | None] = [None] * count
        self._free = [0.0] * count
        self.now = 0.0

    def engine(self, operation: Operation) -> int:
        return self._engine_of[operation.phase]

    def issue(self, operation: Operation) -> None:
        self._queues[self.engine(operation)].append(operation)

    def next_time(self) -> float | None:
        """Return when the next issued operation starts or ends; None if none can."""
        event = self._next_event()
        return None if event is None else event[0]

    def advance(self, until: float) -> Iterator[tuple[Operation, bool]]:
        """Process all events up to `until`; yield (operation, whether it ends) in time order."""
        while (event := self._next_event()) is not None and event[0] <= until:
            time, is_start, engine = event
            self.now = max(self.now, time)
            operation = self._start(engine, time) if is_start else self._end(engine, time)
            if operation is not None:
                yield operation, not is_start
        self.now = max(self.now, until) if until != math.inf else self.now

    def done(self, operation: Operation, now: float) -> None:
        """Record that the real work of `operation` is done; an overdue one ends now."""
        operation.is_ready = True
        if operation.is_late:
            operation.remaining, operation.since, operation.pace = 0.0, now, 1.0

    def _next_event(self) -> tuple[float, bool, int] | None:
        """Return (time, whether it is a start, engine); of simultaneous events ends come first."""
        times = [
            self._next_start(engine) if active is None else active.projected_end()
            for engine, active in enumerate(self._active)
        ]
        pairs = [(time, engine) for engine, time in enumerate(times) if time is not None]
        events = ((time, self._active[engine] is None, engine) for time, engine in pairs)
        return min(events, default=None)

    def _next_start(self, engine: int) -> float | None:
        queue = self._queues[engine]
        if not queue or any(before.ended is None for before in queue[0].after):
            return None
        ends = [before.ended for before in queue[0].after if before.ended is not None]
        return max([self._free[engine], queue[0].earliest_start, *ends])

    def _start(self, engine: int, time: float) -> Operation:
        operation = self._queues[engine].popleft()
        operation.started = operation.since = time
        operation.remaining = operation.seconds
        self._active[engine] = operation
        self._repace()
        return operation

    def _end(self, engine: int, time: float) -> Operation | None:
        operation = self._active[engine]
        assert operation is not None
        if operation.is_ready:
            operation.ended = self._free[engine] = time
            self._active[engine] = None
        else:
            operation.is_late = True
        self._repace()
        return operation if operation.is_ready else None

    def _repace(self) -> None:
        """Set the pace of each copy according to whether the other direction is busy.

        A copy that started in the past (the host issued it late) ran at full pace until now.
        """
        running = [op for op in self._active if op and op.projected_end() is not None]
        busy = {operation.phase for operation in running}
        for operation in running:
            shared = _OPPOSITE.get(operation.phase) in busy
            pace = self._duplex[operation.phase] if shared else 1.0
            remaining = operation.remaining - (self.now - operation.since) * operation.pace
            if pace != operation.pace and remaining > 0:
                operation.remaining, operation.since = remaining, self.now
                operation.pace = pace
