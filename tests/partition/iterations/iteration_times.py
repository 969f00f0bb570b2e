"""Times of iterations, as devices report them."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.partition.iterations import TimedIteration
from hetsched.simulate.iterations import SimulatedTimes


def timed(iteration: int, rows: Sequence[int], *seconds: float, count: int = 1) -> TimedIteration:
    """An iteration in which each device computed for so many seconds; 0: it took no part."""
    times = [SimulatedTimes(each, wait=max(seconds) - each) if each else None for each in seconds]
    return TimedIteration(iteration, tuple(rows), times, count)
