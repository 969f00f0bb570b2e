"""A mapping that is bounded in entries and in bytes. Pure."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """A mapping whose oldest entries are dropped first; using one with `get` makes it new again.

    The entry put last is always kept, however large it is. Not thread-safe. `nbytes`: of all
    entries together, as estimated by those who put them.
    """

    def __init__(self, *, max_entries: int | None = None, max_bytes: int | None = None) -> None:
        self._max_entries = math.inf if max_entries is None else max_entries
        self._max_bytes = math.inf if max_bytes is None else max_bytes
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def items(self) -> Iterator[tuple[Key, Value]]:
        """Yield all entries, the oldest first. Doesn't count as a use."""
        for key, (value, _) in self._entries.items():
            yield key, value

    def peek(self, key: Key) -> Value | None:
        """Return an entry without using it; None if there is none. For any thread."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def get(self, key: Key) -> Value | None:
        """Return an entry and note its use; None if there is none."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def get_or_compute(self, key: Key, compute: Callable[[], Value]) -> Value:
        """Return the entry for `key`; if there is none, compute one and put it, as of 0 bytes."""
        if key in self._entries:
            self._entries.move_to_end(key)
        else:
            self.put(key, compute())
        return self._entries[key][0]

    def put(self, key: Key, value: Value, nbytes: int = 0) -> list[Value]:
        """Add or replace an entry of `nbytes`; return the values dropped for it."""
        self.pop(key)
        self._entries[key] = value, nbytes
        self.nbytes += nbytes
        dropped = []
        entries = self._entries
        while len(entries) > 1 and (
            len(entries) > self._max_entries or self.nbytes > self._max_bytes
        ):
            _, (oldest, size) = self._entries.popitem(last=False)
            self.nbytes -= size
            dropped.append(oldest)
        return dropped

    def pop(self, key: Key) -> Value | None:
        """Remove and return an entry; None if there is none."""
        if key not in self._entries:
            return None
        value, size = self._entries.pop(key)
        self.nbytes -= size
        return value

    def clear(self) -> None:
        self._entries.clear()
        self.nbytes = 0
