"""Job numbers, which never repeat: not after a crash or a power cut, nor if the journal is lost.

Numbers are reserved in blocks, on disk, before they are given to jobs: in the journal, and in a
small file beside it, which is there if the journal can't be read. A crash skips the rest of a
block.
"""

from __future__ import annotations

from collections.abc import Callable

from hetsched.errors import TryAgain

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

    def take(self) -> int:
        """Return a number that no job has had, nor will have after a crash. Raises TryAgain."""
        if self.last >= self.reserved:
            raise TryAgain("the journal's disk is slow: there are no new job numbers; try again")
        self.last += 1
        if self._reserve is not None and self._requested - self.last <= BLOCK // 2:
            self._requested += BLOCK
            self._reserve(self._requested)
        return self.last

    def give_back(self, number: int) -> None:
        """Take back a number that nobody has seen, if it is the last one."""
        if number == self.last:
            self.last -= 1
