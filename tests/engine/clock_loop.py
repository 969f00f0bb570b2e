"""A loop's timers on a clock that only the test moves."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from timer_queue import Timer, TimerQueue


class ClockLoop:
    """A loop whose time passes in `pass_time` only."""

    def __init__(self) -> None:
        self.now = 100.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self.now + seconds, callback, TimerQueue())
        heapq.heappush(self._timers, (timer.due, next(self._numbers), timer))
        return timer

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
        self.now = end
