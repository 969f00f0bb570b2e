"""The failures of one device, in all or for one kind of job, and whether it is barred. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_FAILURES = 3
"""Failures after which a device is barred."""
FIRST_BAR_SECONDS = 60.0
"""How long a device is barred the first time; then twice as long each time."""
MAX_BAR_SECONDS = 86400.0
"""The longest time that a device is barred. Arbitrary."""
FORGOTTEN = 0.5
"""A count below this is nothing."""
MAX_KINDS = 16
"""Maximum kinds of job that are remembered for one tally. Arbitrary; two are enough."""


def bar_seconds(times: int) -> float:
    """Return how long a device is barred that has been so `times` times before."""
    return min(MAX_BAR_SECONDS, FIRST_BAR_SECONDS * 2.0 ** min(times, 64))


@dataclass
class FailureTally:
    """A count of failures, halved by each success.

    Attributes
    ----------
    count : float
    kinds : dict of str to None
        The kinds of job that failed, the latest last.
    reason : str
        The latest.
    barred_until : float, seconds
    times_barred : int
    """

    count: float = 0.0
    kinds: dict[str, None] = field(default_factory=dict)
    reason: str = ""
    barred_until: float = -math.inf
    times_barred: int = 0

    def is_barred(self, now: float) -> bool:
        return now < self.barred_until

    def fail(self, kind: str, reason: str, now: float, min_kinds: int = 1) -> bool:
        """Count a failure; return whether the device is barred because of it.

        Parameters
        ----------
        min_kinds : int
            Kinds of job that must have failed.
        """
        self.count += 1
        self.reason = reason
        self.kinds[kind] = None
        _drop_oldest(self.kinds, MAX_KINDS)
        if self.count < MAX_FAILURES or len(self.kinds) < min_kinds:
            return False
        self.barred_until = now + bar_seconds(self.times_barred)
        self.times_barred += 1
        self.count = MAX_FAILURES - 1  # when it is tried again, one failure bars it again
        return True

    def succeed(self) -> bool:
        """Halve the count; return whether nothing of it remains."""
        self.count /= 2
        return self.count < FORGOTTEN


def _drop_oldest(kinds: dict[str, None], limit: int) -> None:
    for kind in _oldest(kinds, len(kinds) - limit):
        del kinds[kind]


def _oldest(kinds: Iterable[str], number: int) -> list[str]:
    return [kind for _, kind in zip(range(number), kinds, strict=False)]
