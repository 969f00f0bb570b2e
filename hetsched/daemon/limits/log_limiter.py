"""Limits how often a kind of event that clients can cause at will is logged. Pure."""

from __future__ import annotations

LOG_INTERVAL = 10.0
"""Seconds between two lines about one kind of event. Arbitrary."""


class LogLimiter:
    """Decides which events of one kind are logged: the first, then one per LOG_INTERVAL.

    Attributes
    ----------
    total : int
        All events so far.
    """

    def __init__(self) -> None:
        self.total = 0
        self._next = float("-inf")
        self._unlogged = 0

    def admit(self, now: float) -> str | None:
        """Return what to append to the line, such as " (3 more before)"; None: don't log."""
        self.total += 1
        if now < self._next:
            self._unlogged += 1
            return None
        self._next = now + LOG_INTERVAL
        unlogged, self._unlogged = self._unlogged, 0
        return f" ({unlogged} more before)" if unlogged else ""
