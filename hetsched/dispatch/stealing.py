"""Work stealing: whether an idle device takes chunks from another, and how many units. Ours.

Each device's pace is tracked: the planned one at first, then that of its latest chunks. The paces
predict when devices finish; units move from the device expected to finish last if that shortens
the run noticeably.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MIN_GAIN = 0.1
"""Fraction of the remaining time that stealing must gain: less is within the noise of paces."""
RECENT_CHUNKS = 4
"""Latest chunks that determine the pace, few enough to detect a slowdown soon."""


@dataclass
class PaceTracker:
    """Seconds per unit of one device, planned and then measured.

    Attributes
    ----------
    planned : float or None, seconds/unit
    started : float or None, seconds
        When the first chunk was sent.
    first_chunk : float or None, seconds/unit
        Of the first chunk, which overlaps with no other; or of those reported together with it.
    measured : float or None, seconds/unit
        Of the latest chunks.
    """

    planned: float | None
    started: float | None = None
    first_chunk: float | None = None
    measured: float | None = None
    _marks: deque[tuple[float, int]] = field(
        default_factory=lambda: deque(maxlen=RECENT_CHUNKS + 1)
    )
    _done: int = 0
    _first_report: float | None = None

    @property
    def latest(self) -> float | None:
        """Measured seconds per unit, of the first chunk until there are more; None before."""
        return self.first_chunk if self.measured is None else self.measured

    def resume(self, now: float) -> None:
        """Restart timing when a chunk is sent after a pause."""
        if self.started is None:
            self.started = now
        if self._marks:
            self._marks.clear()
            self._marks.append((now, self._done))

    def record(self, units: int, now: float) -> None:
        """Record a finished chunk; of those reported together, all have the same `now`."""
        is_together = bool(self._marks) and self._marks[-1][0] == now
        self._done += units
        if self.started is not None and self._first_report in (None, now):
            self._first_report = now
            self.first_chunk = (now - self.started) / self._done
        if is_together:
            self._marks[-1] = (now, self._done)
        else:
            self._marks.append((now, self._done))
        if len(self._marks) > 1:
            (start, before), (end, after) = self._marks[0], self._marks[-1]
            self.measured = (end - start) / (after - before)

    def seconds_per_unit(self, now: float, in_flight: int) -> float | None:
        """Return the present pace; None while it is unknown.

        `in_flight`: units of the chunk expected to finish next, which may already be late.
        """
        pace = self.measured
        if pace is None:
            pace = self.planned if self.planned is not None else self.first_chunk
        if pace is not None and in_flight and self.started is not None:
            pace = max(pace, (now - self._last_mark) / in_flight)
        return pace

    def expected_end(self, now: float, in_flight: int, units: int) -> float | None:
        """Predict when `units`, including those in flight, are done; None without a pace."""
        pace = self.seconds_per_unit(now, in_flight)
        if pace is None:
            return None
        return max(now, self._last_mark + units * pace) if in_flight else now + units * pace

    @property
    def _last_mark(self) -> float:
        return self._marks[-1][0] if self._marks else self.started or 0.0


@dataclass(frozen=True)
class ExpectedFinish:
    """The predicted finish time of a device.

    Attributes
    ----------
    end : float, seconds
    pace : float, seconds/unit
    """

    end: float
    pace: float


def units_to_steal(now: float, thief: ExpectedFinish, victim: ExpectedFinish) -> int:
    """Return units to move from `victim` to `thief` so that both finish together; 0: no gain.

    `thief.pace` is the cost of additional units.
    """
    difference = victim.end - thief.end
    units = int(difference / (thief.pace + victim.pace)) if victim.pace > 0 else 0
    end = max(thief.end + units * thief.pace, victim.end - units * victim.pace)
    return units if units and victim.end - end >= MIN_GAIN * (victim.end - now) else 0
