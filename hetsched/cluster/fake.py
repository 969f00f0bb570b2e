"""Hosts of known speeds in virtual time, which may come and go: for tests and simulation."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hetsched.cluster import orders, stencil
from hetsched.cluster.coordinator import Added, Done, Event, Lost, Share
from hetsched.cluster.regions import Shape


class _Virtual:
    """Hosts and events in virtual time; `later` events happen at their seconds."""

    def __init__(self, hosts: Iterable[str], later: Sequence[tuple[float, Event]]) -> None:
        self._time = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Event | stencil.Told]] = []
        for when, event in later:
            self._push(when, event)
        coming = {event.host for _, event in later if isinstance(event, Added)}
        self._alive = dict.fromkeys((host for host in hosts if host not in coming), 0.0)
        """Host -> when it has nothing to do."""

    def _push(self, when: float, event: Event | stencil.Told) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))

    def hosts(self) -> Sequence[str]:
        return list(self._alive)

    def now(self) -> float:
        return self._time

    def event(self, seconds: float) -> Any:
        if not self._events or self._events[0][0] > self._time + seconds:
            self._time += seconds
            return None
        when, _, event = heapq.heappop(self._events)
        self._time = max(self._time, when)
        if isinstance(event, Added):
            self._alive[event.host] = self._time
        elif isinstance(event, Lost):
            self._alive.pop(event.host, None)
        return event


class FakeHosts(_Virtual):
    """`seconds[host](units)` is the time of a part on the host itself.

    `link(units)` is the time that its data take to the host and back; they travel while the host
    computes. What a Lost host had is never reported; with `late`, it is nevertheless.
    """

    def __init__(
        self,
        seconds: Mapping[str, Callable[[int], float]],
        *,
        link: Callable[[int], float] = lambda units: 0.0,
        later: Sequence[tuple[float, Event]] = (),
        late: bool = False,
    ) -> None:
        super().__init__(seconds, later)
        self._seconds, self._link, self._late = dict(seconds), link, late
        self.sent: list[tuple[str, Share]] = []

    def send(self, host: str, share: Share) -> None:
        self.sent.append((host, share))
        if host in self._alive:
            travel = self._link(share.count)
            start = max(self._alive[host], self._time + travel / 2)
            taken = self._seconds[host](share.count)
            self._alive[host] = start + taken
            self._push(start + taken + travel / 2, Done(host, share, taken))

    def event(self, seconds: float) -> Any:
        event = super().event(seconds)
        is_reported = self._late or not isinstance(event, Done) or event.host in self._alive
        return event if is_reported else None


class FakeGridHosts(_Virtual):
    """`powers[host](time)` is its cells a second; a sweep takes `overhead` more a rectangle.

    `moved` seconds pass with each cut. With a `shape` hosts compute frames, too.
    """

    def __init__(
        self,
        powers: Mapping[str, Callable[[float], float]],
        *,
        overhead: float = 0.01,
        moved: float = 0.05,
        shape: Shape | None = None,
        later: Sequence[tuple[float, Event]] = (),
    ) -> None:
        super().__init__(powers, later)
        self._powers, self._overhead, self._moved = powers, overhead, moved
        self._shape = shape
        self._cut: orders.Cut | None = None
        self._asked: dict[str, deque[orders.Advance]] = {}
        self._iteration = 0
        self._busy_until = 0.0
        self.sweeps: list[dict[str, float]] = []
        """Seconds of each host in each sweep of the present cut."""
        self.cuts: list[orders.Cut] = []

    def _tell(self, when: float, host: str, notice: orders.Notice) -> None:
        self._push(when, stencil.Told(host, notice))

    def open(self, host: str) -> None:
        self._tell(self._time, host, orders.Opened(1))

    def drop(self, host: str, reason: str) -> None:
        self._push(self._time, Lost(host, reason))

    def order(self, host: str, order: orders.Order) -> None:
        if isinstance(order, orders.Cut):
            if self._cut is None or order.generation > self._cut.generation:
                self._cut, self._iteration = order, order.iteration
                self._asked = {host: deque() for host, _ in order.targets}
                self._busy_until = self._time + self._moved
                self.cuts.append(order)
                self.sweeps.clear()
            if host in self._asked:
                ready = orders.Ready(1, order.generation, self._moved)
                self._tell(self._busy_until, host, ready)
        elif isinstance(order, orders.Collect):
            self._tell(self._time, host, orders.Collected(1, order.generation))
        elif self._cut is not None and order.generation == self._cut.generation:
            self._asked[host].append(order)
            while all(self._asked.values()):
                self._sweep()

    def _sweep(self) -> None:
        """Let all hosts advance by one; each waits for the slowest."""
        assert self._cut is not None
        until = self._asked[next(iter(self._asked))][0].until
        steps = min(self._cut.width, until - self._iteration)
        began = max(self._busy_until, self._time)
        taken, overheads = {}, {}
        for host in self._asked:
            boxes = [box for owner, box in self._cut.targets if owner == host]
            if self._shape is not None:
                boxes = [b.framed(self._cut.width, self._shape, (False, False)) for b in boxes]
            cells = sum(box.cells for box in boxes)
            taken[host] = steps * cells / self._powers[host](began)
            overheads[host] = self._overhead * len(boxes)
        self._busy_until = began + max(taken[host] + overheads[host] for host in taken)
        self._iteration += steps
        self.sweeps.append(taken)
        for host, seconds in taken.items():
            whole = seconds + overheads[host]
            swept = orders.Swept(1, self._cut.generation, self._iteration, whole, seconds, 0.0)
            self._tell(self._busy_until, host, swept)
        if self._iteration == until:
            for host, asked in self._asked.items():
                order = asked.popleft()
                for writer in {host, order.keeper or host} if order.save else ():
                    saved = orders.Saved(1, order.save, host, 0.01)
                    self._tell(self._busy_until, writer, saved)
