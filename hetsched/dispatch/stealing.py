"""Whether an idle device takes chunks from another, and how many units. Ours.

Each device's pace is tracked: the planned one until it has finished a few chunks, then that of
those chunks. The paces give the times at which devices will finish; units move from the device
expected to finish last if that makes the run noticeably shorter.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MIN_GAIN = 0.1
"""Fraction of the remaining time that stealing must gain: less is within the noise of paces."""
RECENT_CHUNKS = 4
"""Finished chunks that give the pace, so that a device that slows down is noticed soon."""


@dataclass
class PaceTracker:
    """Seconds per unit of one device, planned and then measured.

    Attributes
    ----------
    planned : float or None, seconds/unit
    started : float or None, seconds
        When it was first sent a chunk.
    first_chunk : float or None, seconds/unit
        What its first chunk took, with no other to overlap with.
    measured : float or None, seconds/unit
        What the latest chunks took.
    """

    planned: float | None
    started: float | None = None
    first_chunk: float | None = None
    measured: float | None = None
    _marks: deque[tuple[float, int]] = field(
        default_factory=lambda: deque(maxlen=RECENT_CHUNKS + 1)
    )
    _done: int = 0

    def resume(self, now: float) -> None:
        """Start timing again: the device is sent a chunk after a pause, which doesn't count."""
        if self.started is None:
            self.started = now
        if self._marks:
            self._marks.clear()
            self._marks.append((now, self._done))

    def record(self, units: int, now: float) -> None:
        """Record a finished chunk."""
        if self.first_chunk is None and self.started is not None:
            self.first_chunk = (now - self.started) / units
        self._done += units
        self._marks.append((now, self._done))
        if len(self._marks) > 1:
            (start, before), (end, after) = self._marks[0], self._marks[-1]
            self.measured = (end - start) / (after - before)

    def seconds_per_unit(self, now: float, in_flight: int) -> float | None:
        """The present pace; None while it is unknown.

        `in_flight`: units of the chunk expected to finish next, which may already be late.
        """
        pace = self.measured
        if pace is None:
            pace = self.planned if self.planned is not None else self.first_chunk
        if pace is not None and in_flight and self.started is not None:
            pace = max(pace, (now - self._last_mark) / in_flight)
        return pace

    def expected_end(self, now: float, in_flight: int, units: int) -> float | None:
        """When `units`, those in flight included, will be done; None while the pace is unknown."""
        pace = self.seconds_per_unit(now, in_flight)
        if pace is None:
            return None
        return max(now, self._last_mark + units * pace) if in_flight else now + units * pace

    @property
    def _last_mark(self) -> float:
        return self._marks[-1][0] if self._marks else self.started or 0.0


@dataclass(frozen=True)
class ExpectedFinish:
    """When a device will finish, as predicted at one moment.

    Attributes
    ----------
    end : float, seconds
    pace : float, seconds/unit
    """

    end: float
    pace: float


def units_to_steal(now: float, thief: ExpectedFinish, victim: ExpectedFinish) -> int:
    """Units to move from `victim` to `thief` so that both finish together; 0: not worth it.

    `thief.pace` is the cost of additional units.
    """
    difference = victim.end - thief.end
    units = int(difference / (thief.pace + victim.pace)) if victim.pace > 0 else 0
    end = max(thief.end + units * thief.pace, victim.end - units * victim.pace)
    return units if units and victim.end - end >= MIN_GAIN * (victim.end - now) else 0
