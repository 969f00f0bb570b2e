"""Counts the answers that devices still owe. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class PendingAnswers:
    """Pending answers by device.

    Parameters
    ----------
    devices : iterable of str
        One entry per answer expected.
    """

    def __init__(self, devices: Iterable[str]) -> None:
        self._counts: dict[str, int] = {}
        for device in devices:
            self._counts[device] = self._counts.get(device, 0) + 1

    def __bool__(self) -> bool:
        """Whether an answer is pending."""
        return bool(self._counts)

    def answered(self, device: str) -> bool:
        """Count one answer; whether it was expected."""
        count = self._counts.get(device, 0)
        if count > 1:
            self._counts[device] = count - 1
        else:
            self._counts.pop(device, None)
        return count > 0

    def drop(self, devices: Iterable[str]) -> None:
        """Expect nothing more from `devices`."""
        for device in devices:
            self._counts.pop(device, None)
