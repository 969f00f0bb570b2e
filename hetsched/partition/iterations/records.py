"""What goes into an `IterationBalance`, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.job import IterationSeconds


@dataclass(frozen=True)
class TimedIteration:
    """An iteration that all devices have completed, or several of them with the same split.

    Attributes
    ----------
    iteration : int
        The number of the (last) iteration.
    rows : tuple of int
        Of each device.
    times : sequence of IterationSeconds or None
        None: the device took no part.
    count : int
        Iterations; `times` are their means.
    """

    iteration: int
    rows: tuple[int, ...]
    times: Sequence[IterationSeconds | None]
    count: int = 1

    @property
    def busy(self) -> tuple[float, ...]:
        """Seconds of each device without waits."""
        return tuple(0.0 if time is None else time.busy for time in self.times)


@dataclass(frozen=True)
class Move:
    """A new split.

    Attributes
    ----------
    iteration : int
        The last iteration that the decision took into account.
    before, rows : tuple of int
        Of each device.
    moved : int, rows
        That change their device, each of which has contiguous rows.
    reason : str
    seconds_before : float
        Of an iteration with the rows before, as measured; NaN if unknown.
    seconds_after : float
        Of an iteration, as predicted; NaN if unknown.
    cost : float, seconds
        Expected, for moving the rows.
    remaining : int or None
        Iterations over which the gain was weighed against the cost; None: as many as so far.
    """

    iteration: int
    before: tuple[int, ...]
    rows: tuple[int, ...]
    moved: int
    reason: str
    seconds_before: float
    seconds_after: float
    cost: float
    remaining: int | None


def mean_busy(group: Sequence[TimedIteration]) -> tuple[float, ...]:
    """Return the mean seconds of each device without waits, over iterations of one split."""
    count = sum(each.count for each in group)
    columns = zip(*(each.busy for each in group), strict=True)
    return tuple(
        sum(busy * each.count for busy, each in zip(column, group, strict=True)) / count
        for column in columns
    )
