"""When the operations of an emulated device start and end. Pure: time is a parameter.

Three FIFO streams (copy in, compute, copy out) run on engines: with two copy engines each stream
has its own; with one the copies share it; with none all three do. The head of an engine's queue
starts when the engine is free, all operations that it comes after have ended, and its floor has
passed. While copies of both directions run, each keeps its share of its own pace (a fluid model).

The same model drives both clocks: the virtual one runs it as far as somebody waits, the real one
up to now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

_LANES = {
    2: {"h2d": 0, "compute": 1, "d2h": 2},
    1: {"h2d": 0, "compute": 1, "d2h": 0},
    0: {"h2d": 0, "compute": 0, "d2h": 0},
}
_OPPOSITE = {"h2d": "d2h", "d2h": "h2d"}


@dataclass(eq=False)
class Operation:
    """One copy or computation.

    Attributes
    ----------
    phase : "h2d", "compute" or "d2h"
    seconds : float
        At full pace.
    after : sequence of Operation
        Must have ended before.
    floor : float, seconds
        No earlier start.
    ready : bool
        Its real work is done; until then it can't end.
    late : bool
        Its real work outlasted its modelled time.
    """

    phase: str
    seconds: float
    after: Sequence[Operation] = ()
    floor: float = 0.0
    begin: Callable[[], None] = lambda: None
    finish: Callable[[], None] = lambda: None
    ready: bool = True
    late: bool = False
    started: float | None = None
    ended: float | None = None
    error: BaseException | None = None
    left: float = field(default=0.0, init=False)
    """Seconds at full pace that were left at `since`; they go by at `pace` since then."""
    since: float = field(default=0.0, init=False)
    pace: float = field(default=1.0, init=False)

    def projected_end(self) -> float:
        return self.since + self.left / self.pace

    @property
    def span(self) -> tuple[float, float]:
        """Start and end, of an operation that has ended."""
        assert self.started is not None and self.ended is not None
        return self.started, self.ended


class Streams:
    """The engines of one device.

    Parameters
    ----------
    engines : 2, 1 or 0
    duplex : (float, float)
        Share of its pace that a copy in, a copy out keeps while the other direction is busy.
    """

    def __init__(self, engines: int, duplex: tuple[float, float]) -> None:
        self._lane = _LANES[engines]
        self._share = {"h2d": duplex[0], "d2h": duplex[1], "compute": 1.0}
        count = max(self._lane.values()) + 1
        self._queues: list[deque[Operation]] = [deque() for _ in range(count)]
        self._active: list[Operation | None] = [None] * count
        self._free = [0.0] * count
        self.now = 0.0

    def lane(self, operation: Operation) -> int:
        """The engine that runs it."""
        return self._lane[operation.phase]

    def issue(self, operation: Operation) -> None:
        self._queues[self.lane(operation)].append(operation)

    def next_time(self) -> float | None:
        """When something starts or ends next, as far as is known."""
        found = self._next()
        return None if found is None else found[0]

    def advance(self, until: float) -> Iterator[tuple[Operation, bool]]:
        """Everything that happens up to `until`: (operation, whether it ends) in order of time."""
        while True:
            found = self._next()
            if found is None or found[0] > until:
                break
            time, ends, lane = found
            self.now = max(self.now, time)
            operation = self._end(lane, time) if ends else self._start(lane, time)
            if operation is not None:
                yield operation, ends
        self.now = max(self.now, until) if until != float("inf") else self.now

    def done(self, operation: Operation, now: float) -> None:
        """The real work of `operation` is done; one that was overdue ends now."""
        operation.ready = True
        if operation.late:
            operation.left, operation.since, operation.pace = 0.0, now, 1.0

    def _next(self) -> tuple[float, bool, int] | None:
        """Time, whether it is an end, lane. Of simultaneous events ends come first."""
        best: tuple[float, int, int] | None = None
        for lane, active in enumerate(self._active):
            if active is None:
                time, rank = self._earliest(lane), 1
            else:
                time, rank = (None if _overdue(active) else active.projected_end()), 0
            if time is not None and (best is None or (time, rank) < best[:2]):
                best = time, rank, lane
        return None if best is None else (best[0], best[1] == 0, best[2])

    def _earliest(self, lane: int) -> float | None:
        queue = self._queues[lane]
        if not queue:
            return None
        head = queue[0]
        time = max(self._free[lane], head.floor)
        for other in head.after:
            if other.ended is None:
                return None
            time = max(time, other.ended)
        return time

    def _start(self, lane: int, time: float) -> Operation:
        operation = self._queues[lane].popleft()
        operation.started = operation.since = time
        operation.left = operation.seconds
        operation.after = ()  # else each operation of a job would keep all before it alive
        self._active[lane] = operation
        self._repace()
        return operation

    def _end(self, lane: int, time: float) -> Operation | None:
        operation = self._active[lane]
        assert operation is not None
        if not operation.ready:
            operation.late = True
            self._repace()
            return None
        operation.ended = self._free[lane] = time
        self._active[lane] = None
        self._repace()
        return operation

    def _repace(self) -> None:
        """From now on copies go at the pace that the other direction leaves them.

        What started in the past (its host was slow to say so) has gone at full pace until now.
        """
        busy = {op.phase for op in self._active if op is not None and not _overdue(op)}
        for operation in self._active:
            if operation is None or _overdue(operation):
                continue
            shared = _OPPOSITE.get(operation.phase) in busy
            pace = self._share[operation.phase] if shared else 1.0
            left = operation.left - (self.now - operation.since) * operation.pace
            if pace != operation.pace and left > 0:
                operation.left, operation.since, operation.pace = left, self.now, pace


def _overdue(operation: Operation) -> bool:
    """Its modelled time is over, its real work isn't."""
    return operation.late and not operation.ready
