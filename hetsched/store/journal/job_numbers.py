"""Job numbers, which never repeat, also after a crash or a power cut.

Numbers are reserved in the journal in blocks, so that a job that is acknowledged before its commit
has a number that no later daemon gives again. A crash skips the rest of a block. No I/O.
"""

from __future__ import annotations

from hetsched.store.journal.records import NumbersReserved

BLOCK = 1000
"""Numbers per reservation; at 5000 jobs/s one every 0.2 s."""


class JobNumbers:
    """Gives out numbers from `next_number` up to `reserved`, and says when to reserve more."""

    def __init__(self, next_number: int, reserved: int) -> None:
        self._next = next_number
        self._reserved = reserved
        self._is_reserving = False

    @property
    def last(self) -> int:
        """The last number that was given out."""
        return self._next - 1

    @property
    def is_used_up(self) -> bool:
        """Whether no number is reserved until the next reservation is on disk."""
        return self._next > self._reserved

    def take(self) -> int:
        """Return a new number, unless they are used up; then write what `reservation` returns."""
        assert not self.is_used_up, "no number is reserved"
        self._next += 1
        return self._next - 1

    def give_back(self, number: int) -> None:
        """Take back a number that nobody has seen, if it is the last one."""
        if number == self.last:
            self._next -= 1

    def reservation(self) -> NumbersReserved | None:
        """Return the next block to reserve, once half of the present one is used; else None."""
        if self._is_reserving or self._reserved - self._next >= BLOCK // 2:
            return None
        self._is_reserving = True
        return NumbersReserved(self._reserved + BLOCK)

    def on_reserved(self, record: NumbersReserved, error: BaseException | None) -> None:
        """Take note of what became of a reservation."""
        self._is_reserving = False
        if error is None:
            self._reserved = max(self._reserved, record.upto)
