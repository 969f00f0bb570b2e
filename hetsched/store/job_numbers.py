"""Job numbers, which never repeat: not after a crash or a power cut, nor if the journal is lost.

Numbers are reserved in blocks, on disk, before they are given to jobs: in the journal, and in a
small file beside it, which is there if the journal can't be read. A crash skips the rest of a
block.
"""

from __future__ import annotations

from collections.abc import Callable

BLOCK = 1000
"""Numbers per reservation; at 5000 jobs/s one every 0.2 s."""


class NumberBlocks:
    """Gives out numbers from `next_number` up to `reserved`. On the loop's thread only.

    `reserve`: called with the number up to which more are needed, once half of a block is used;
    `on_reserved` follows when that is on disk.
    """

    def __init__(
        self, next_number: int, reserved: int, reserve: Callable[[int], None] | None = None
    ) -> None:
        self._next = next_number
        self._reserved = reserved
        self._reserve = reserve
        self._is_reserving = False

    @property
    def last(self) -> int:
        return self._next - 1

    @property
    def is_used_up(self) -> bool:
        """Whether no number is reserved until the next reservation is on disk."""
        return self._next > self._reserved

    def take(self) -> int:
        assert not self.is_used_up, "no number is reserved"
        self._next += 1
        is_low = self._reserved - self._next < BLOCK // 2
        if is_low and self._reserve is not None and not self._is_reserving:
            self._is_reserving = True
            self._reserve(self._reserved + BLOCK)
        return self._next - 1

    def give_back(self, number: int) -> None:
        """Take back a number that nobody has seen, if it is the last one."""
        if number == self.last:
            self._next -= 1

    def on_reserved(self, upto: int) -> None:
        self._is_reserving = False
        self._reserved = max(self._reserved, upto)
