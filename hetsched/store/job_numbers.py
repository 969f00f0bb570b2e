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
    `reserved` is set to it, by any thread, when that is on disk.
    """

    def __init__(
        self, next_number: int, reserved: int, reserve: Callable[[int], None] | None = None
    ) -> None:
        self.last = next_number - 1
        self.reserved = self._requested = reserved
        self._reserve = reserve

    @property
    def is_used_up(self) -> bool:
        """Whether no number is reserved until the next reservation is on disk."""
        return self.last >= self.reserved

    def take(self) -> int:
        assert not self.is_used_up, "no number is reserved"
        self.last += 1
        if self._reserve is not None and self._requested - self.last <= BLOCK // 2:
            self._requested += BLOCK
            self._reserve(self._requested)
        return self.last

    def give_back(self, number: int) -> None:
        """Take back a number that nobody has seen, if it is the last one."""
        if number == self.last:
            self.last -= 1
