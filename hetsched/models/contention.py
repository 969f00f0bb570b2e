"""How much other processes slow a device down, as its last runs show. Pure.

A contended run says nothing about the speed of the device, but about the next run: another process
that used the core in most of the last runs will probably go on. Two runs show that it has ended,
or takes less than before: a run slowed down by a few per cent, for example by the start of its own
process, doesn't show that an earlier slowdown of five lasts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from hetsched.models.evidence.confidence import robust_median

RECENT_RUNS = 5
"""Runs that count: a build or another user's job that ended before them is forgotten."""
MIN_CONTENDED = 3
"""Contended ones among them from which on contention is assumed to last."""
RUNS_TO_END = 2
"""Runs without contention in a row that end it, or with less that limit it: one is luck now and
then on a busy machine."""
MAX_SLOWDOWN = 16.0
"""Larger slowdowns count as this much. Arbitrary: that many processes rarely share a core."""


def lasting_slowdown(slowdowns: Sequence[float]) -> float:
    """Return the slowdown by which the next run is predicted; 1: none.

    Parameters
    ----------
    slowdowns : sequence of float
        Of the last runs, oldest first: measured time over that without contention, at least 1;
        1 for a run without contention.
    """
    recent = slowdowns[-RECENT_RUNS:]
    contended = [slowdown for slowdown in recent if slowdown > 1.0]
    if len(contended) < MIN_CONTENDED:
        return 1.0
    latest = max(*recent[-RUNS_TO_END:], 1.0)
    return min(robust_median(contended), latest, MAX_SLOWDOWN)


class Contention:
    """The slowdowns of the last runs of one model key."""

    def __init__(self) -> None:
        self._slowdowns: deque[float] = deque(maxlen=RECENT_RUNS)

    def __iter__(self) -> Iterator[float]:
        return iter(self._slowdowns)

    def add(self, slowdown: float) -> None:
        """Add a run; values below 1 count as 1."""
        self._slowdowns.append(max(slowdown, 1.0))

    @property
    def factor(self) -> float:
        """The present slowdown, a ratio of times; 1: none."""
        return lasting_slowdown(tuple(self._slowdowns))

    @property
    def is_recent(self) -> bool:
        """Whether any of the last runs was slowed down."""
        return any(slowdown > 1.0 for slowdown in self._slowdowns)
