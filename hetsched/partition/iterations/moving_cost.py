"""The cost of moving rows, learnt from the first iteration with a new split.

Rows stay in shared memory, so a device that gets rows pays for cold caches, memory of another NUMA
node or copies to an accelerator in its next iteration; devices do so at the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from hetsched.partition.iterations.records import TimedIteration, mean_busy
from hetsched.partition.iterations.row_units import received

MAX_MOVES = 8
"""Moves whose median counts."""
MAX_CORRECTION = 0.5
"""Fraction of a time that may be put down to a move. Arbitrary."""


class MovingCost:
    """Seconds per row that a device gets.

    Parameters
    ----------
    least : float, seconds/row
        Whatever moves show: noise may hide their cost.
    """

    def __init__(self, least: float = 0.0) -> None:
        self._least = least
        self._observed: deque[float] = deque(maxlen=MAX_MOVES)
        self._first: tuple[tuple[int, ...], tuple[float, ...]] | None = None
        """Rows gained, and seconds, of the last iteration if it was the first with its split."""

    @property
    def seconds_per_row(self) -> float:
        return max(self._least, median(self._observed)) if self._observed else self._least

    def exclude(
        self, before: Sequence[int] | None, group: Sequence[TimedIteration]
    ) -> tuple[Sequence[TimedIteration], tuple[float, ...]]:
        """Learn from iterations with one split; return those that show the devices' speeds.

        Parameters
        ----------
        before : sequence of int, rows, optional
            The split of the iteration before the first of these, if it was another one.
        group : sequence of TimedIteration

        Returns
        -------
        tuple
            The iterations, and the seconds of each device to subtract from their mean.
        """
        first, nothing = group[0], (0.0,) * len(group[0].rows)
        if before is None:
            if self._first is not None:
                self._observe(*self._first, mean_busy(group))
            self._first = None
            return group, nothing
        gained = received(before, first.rows)
        self._first = None
        if first.count > 1:
            return group, nothing
        if len(group) > 1:
            self._observe(gained, first.busy, mean_busy(group[1:]))
            return group[1:], nothing
        self._first = gained, first.busy
        known = median(self._observed) if self._observed else 0.0
        return group, tuple(
            min(known * rows, MAX_CORRECTION * busy)
            for rows, busy in zip(gained, first.busy, strict=True)
        )

    def _observe(
        self, gained: Sequence[int], first: Sequence[float], later: Sequence[float]
    ) -> None:
        """Learn from the first iteration with a split, and later ones, seconds of each device."""
        extra = [
            max(0.0, a - b) / rows
            for rows, a, b in zip(gained, first, later, strict=True)
            if rows > 0
        ]
        if extra:
            self._observed.append(median(extra))

    def seconds(self, before: Sequence[int], after: Sequence[int]) -> float:
        """Return the expected seconds of a move."""
        return self.seconds_per_row * max(received(before, after), default=0)
