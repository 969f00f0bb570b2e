"""Timers in the order in which they are due; cancelled ones don't accumulate. No clock."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

MAX_CANCELLED = 64
"""Cancelled timers that may stay in the heap, if they aren't the majority. Arbitrary."""


class Timer:
    """A callback that is due at a time. Belongs to the thread of its queue."""

    __slots__ = ("_queue", "callback", "due")

    def __init__(self, due: float, callback: Callable[[], None], queue: TimerQueue) -> None:
        self.due = due
        self.callback: Callable[[], None] | None = callback
        self._queue = queue

    @property
    def is_pending(self) -> bool:
        """Whether the timer is neither cancelled nor was due."""
        return self.callback is not None

    def cancel(self) -> None:
        """Never call the callback, and release it now. Idempotent, also once it was called."""
        if self.callback is not None:
            self.callback = None
            self._queue.on_cancelled()


class TimerQueue:
    """A heap of timers. Adding and removing one takes O(log n), cancelling O(1) on average."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._cancelled = 0

    def __len__(self) -> int:
        """Count the timers that are neither cancelled nor were due."""
        return len(self._heap) - self._cancelled

    def add(self, due: float, callback: Callable[[], None]) -> Timer:
        """Add a timer; of those due at the same time, the first added comes first."""
        timer = Timer(due, callback, self)
        heapq.heappush(self._heap, (due, next(self._numbers), timer))
        return timer

    def next_due(self) -> float | None:
        """Return when the next timer is due; None if there is none."""
        self._drop_cancelled()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> tuple[float, Callable[[], None]] | None:
        """Remove the first timer due by `now`; return when it was due and its callback."""
        self._drop_cancelled()
        if not self._heap or self._heap[0][0] > now:
            return None
        due, _, timer = heapq.heappop(self._heap)
        callback, timer.callback = timer.callback, None
        assert callback is not None
        return due, callback

    def on_cancelled(self) -> None:
        """Count a cancelled timer; rebuild the heap once these are most of it."""
        self._cancelled += 1
        if self._cancelled > max(MAX_CANCELLED, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
            self._cancelled -= 1
