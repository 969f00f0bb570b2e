"""When to try again to reach a daemon that has stopped. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_DELAY = 0.05
"""Seconds from the first attempt to the second; each delay is twice the one before."""
MAX_DELAY = 1.0
"""Seconds. A restart takes about one; both are arbitrary."""


@dataclass
class Backoff:
    """The delays between attempts to reconnect.

    Attributes
    ----------
    deadline : float, seconds
        When to give up, on the clock of `now`.
    """

    deadline: float
    _delay: float = FIRST_DELAY

    def next_delay(self, now: float, jitter: float) -> float | None:
        """Return the seconds until the next attempt; None: give up.

        `jitter`, from 0 to 1, shortens the delay by up to half, so that many clients don't come
        back at the same moment. The last attempt is at the deadline.
        """
        if now >= self.deadline:
            return None
        delay, self._delay = self._delay, min(2 * self._delay, MAX_DELAY)
        return min(delay * (1 - jitter / 2), self.deadline - now)
