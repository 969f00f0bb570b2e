"""Whether a device that runs dry takes chunks from another, and how many units. Ours.

Every device's pace is watched: what was planned, until it has finished a few chunks, then what
those took. From the paces follow the times at which devices will be through; units move from the
one expected to finish last if that makes the end come noticeably sooner.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

WORTH = 0.1
"""Part of the time left that must be gained: less than that is the noise of paces."""
RECENT = 4
"""Finished chunks that tell the pace, so that a device that has become slow is soon seen."""


@dataclass
class Progress:
    """How one device gets on.

    Attributes
    ----------
    planned : float or None, seconds/unit
    started : float or None, seconds
        When it was first sent a chunk.
    alone : float or None, seconds/unit
        What its first chunk took, when there was no other to overlap with.
    measured : float or None, seconds/unit
        What the last few chunks took.
    """

    planned: float | None
    started: float | None = None
    alone: float | None = None
    measured: float | None = None
    _marks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT + 1))
    _done: int = 0

    def resumed(self, now: float) -> None:
        """It is sent a chunk while it has none: the pause before says nothing about its pace."""
        if self.started is None:
            self.started = now
        if self._marks:
            self._marks.clear()
            self._marks.append((now, self._done))

    def finished(self, units: int, now: float) -> None:
        if self.alone is None and self.started is not None:
            self.alone = (now - self.started) / units
        self._done += units
        self._marks.append((now, self._done))
        if len(self._marks) > 1:
            (start, before), (end, after) = self._marks[0], self._marks[-1]
            self.measured = (end - start) / (after - before)

    def pace(self, now: float, flying: int) -> float | None:
        """Seconds a unit; `flying`: units of the chunk that it is expected to finish next."""
        known = next(
            (one for one in (self.measured, self.planned, self.alone) if one is not None), None
        )
        if known is not None and flying and self.started is not None:
            known = max(known, (now - self._last) / flying)
        return known

    def ends(self, now: float, flying: int, units: int) -> float | None:
        """When it will be through with `units`, those in flight among them."""
        pace = self.pace(now, flying)
        if pace is None:
            return None
        return max(now, self._last + units * pace) if flying else now + units * pace

    @property
    def _last(self) -> float:
        return self._marks[-1][0] if self._marks else self.started or 0.0


@dataclass(frozen=True)
class Outlook:
    """One device as seen at one moment: when it is through, seconds; its pace, seconds/unit."""

    ends: float
    pace: float


def units_to_take(now: float, thief: Outlook, victim: Outlook) -> int:
    """Units that end soonest with `thief` instead of with `victim`; 0 if that isn't worth it.

    `thief.pace` is what units more cost it. Both are through together after it.
    """
    together = (victim.ends - thief.ends) / (thief.pace + victim.pace) if victim.pace > 0 else 0.0
    units = int(together)
    ends = max(thief.ends + units * thief.pace, victim.ends - units * victim.pace)
    return units if units and victim.ends - ends >= WORTH * (victim.ends - now) else 0
