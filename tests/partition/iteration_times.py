"""Times of iterations, as devices report them."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.job import IterationSeconds
from hetsched.partition.iterations import TimedIteration


def timed(iteration: int, rows: Sequence[int], *seconds: float, count: int = 1) -> TimedIteration:
    """An iteration in which each device computed for so many seconds; 0: it took no part."""
    times = [
        IterationSeconds(each, wait=max(seconds) - each) if each else None for each in seconds
    ]
    return TimedIteration(iteration, tuple(rows), times, count)
