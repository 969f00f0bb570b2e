"""Answers that are still owed, by device. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable


class Tally:
    """Counts answers down; calls `then` once, when nobody owes one any more.

    Parameters
    ----------
    then : callable
    devices : iterable of str
        One entry for each answer that is owed.
    """

    def __init__(
        self, then: Callable[[], None] = lambda: None, devices: Iterable[str] = ()
    ) -> None:
        self._then: Callable[[], None] | None = then
        self.missing = Counter(iter(devices))  # not of a mapping: its values are no counts

    def answered(self, device: str) -> None:
        """One answer of `device` has come; one that wasn't owed changes nothing."""
        if self.missing[device] > 0:
            self.missing[device] -= 1
            self.check()

    def forgive(self, devices: Iterable[str]) -> None:
        """These devices can't answer any more."""
        for device in devices:
            self.missing.pop(device, None)
        self.check()

    def check(self) -> None:
        if self._then is not None and not +self.missing:
            then, self._then = self._then, None
            then()
