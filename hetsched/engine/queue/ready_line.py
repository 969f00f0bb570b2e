"""The jobs that may start, in order. Pure."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

OrderKey = tuple[int, tuple[int, int], int]
"""Sort key of a job: minus its priority, its place among equals, its number."""

MIN_REMOVED = 1000
"""Started jobs at the front of the list before it is copied without them. Arbitrary."""


class ReadyLine:
    """A sorted list of keys. Jobs leave at the front and join at the end mostly, both in O(1)."""

    def __init__(self) -> None:
        self._keys: list[OrderKey] = []
        self._start = 0
        """Keys before this index have left."""

    def __len__(self) -> int:
        return len(self._keys) - self._start

    def __iter__(self) -> Iterator[int]:
        """Iterate over the jobs, the first in line first. Don't change the line meanwhile."""
        return (self._keys[i][2] for i in range(self._start, len(self._keys)))

    def first(self) -> int | None:
        """Return the job that is first in line."""
        return self._keys[self._start][2] if self else None

    def index(self, key: OrderKey) -> int:
        """Return how many jobs are before a job with this key, in line or not. O(log n)."""
        return bisect_left(self._keys, key, self._start) - self._start

    def add(self, key: OrderKey) -> None:
        insort(self._keys, key, self._start)

    def discard(self, key: OrderKey) -> None:
        """Remove a job, if it is in line."""
        index = bisect_left(self._keys, key, self._start)
        if index == len(self._keys) or self._keys[index] != key:
            return
        if index > self._start:
            del self._keys[index]
            return
        self._start += 1
        if self._start > MIN_REMOVED and 2 * self._start > len(self._keys):
            del self._keys[: self._start]
            self._start = 0
