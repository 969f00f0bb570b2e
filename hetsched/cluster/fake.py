"""Hosts of known speeds in virtual time, which may come and go: for tests and simulation."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence

from hetsched.cluster.coordinator import Added, Done, Event, Lost, Share


class FakeHosts:
    """`seconds[host](units)` is the time of a part on the host itself.

    `link(units)` is the time that its data take to the host and back; they travel while the host
    computes. `later` events happen at their seconds: Added, or Lost, after which what the host had
    is never reported; with `late`, it is reported nevertheless, after everything else.
    """

    def __init__(
        self,
        seconds: Mapping[str, Callable[[int], float]],
        *,
        link: Callable[[int], float] = lambda units: 0.0,
        later: Sequence[tuple[float, Event]] = (),
        late: bool = False,
    ) -> None:
        self._seconds, self._link, self._late = dict(seconds), link, late
        self._time = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Event]] = []
        for when, event in later:
            self._push(when, event)
        coming = {event.host for _, event in later if isinstance(event, Added)}
        self._alive = dict.fromkeys((h for h in seconds if h not in coming), 0.0)
        self.sent: list[tuple[str, Share]] = []

    def _push(self, when: float, event: Event) -> None:
        heapq.heappush(self._events, (when, next(self._order), event))

    def hosts(self) -> Sequence[str]:
        return list(self._alive)

    def now(self) -> float:
        return self._time

    def send(self, host: str, share: Share) -> None:
        self.sent.append((host, share))
        if host in self._alive:
            travel = self._link(share.count)
            start = max(self._alive[host], self._time + travel / 2)
            taken = self._seconds[host](share.count)
            self._alive[host] = start + taken
            self._push(start + taken + travel / 2, Done(host, share, taken))

    def event(self, seconds: float) -> Event | None:
        while self._events and self._events[0][0] <= self._time + seconds:
            when, _, event = heapq.heappop(self._events)
            self._time = max(self._time, when)
            if isinstance(event, Added):
                self._alive[event.host] = self._time
            elif isinstance(event, Lost):
                self._alive.pop(event.host, None)
            elif event.host not in self._alive and not self._late:
                continue
            return event
        self._time += seconds
        return None
