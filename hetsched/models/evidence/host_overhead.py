"""Feeding a device: the processor time that its process takes to submit, copy and wait.

That time is some core's, and a core that also computes then takes longer. What it takes by itself
is what its model should say: the planner adds what feeding costs in the plan at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hetsched.device import ChunkTimes

Done = Sequence[tuple[int, ChunkTimes]]
"""(units, times) of each chunk, in the order in which they ran."""


def fed(chunks: Done) -> float:
    """Seconds of processor time that feeding these chunks took; 0 where nobody knows."""
    return sum(times.fed for _, times in chunks if times.fed is not None)


def taken(cores: Mapping[str, Done], seconds: float) -> dict[str, float]:
    """What of `seconds` of feeding each core gave up while it computed.

    A core that wasn't the job's alone had others on it, feeders or strangers: it is assumed that
    feeders had as much as they needed of what was lost, on each core in proportion.
    """
    lost = {name: sum(_lost(times) for _, times in done) for name, done in cores.items()}
    everything = sum(lost.values())
    share = min(1.0, seconds / everything) if everything > 0 else 0.0
    return {name: share * one for name, one in lost.items()}


def net(chunks: Done, seconds: float) -> tuple[tuple[int, ChunkTimes], ...]:
    """`chunks` with computations that are `seconds` shorter together, each by what it lost."""
    everything = sum(_lost(times) for _, times in chunks)
    share = seconds / everything if everything > 0 else 0.0
    return tuple((units, _shorter(times, share * _lost(times))) for units, times in chunks)


def _lost(times: ChunkTimes) -> float:
    """Seconds of a computation in which somebody else had the core."""
    start, end = times.compute
    return 0.0 if times.busy is None else max(0.0, end - start - times.busy)


def _shorter(times: ChunkTimes, seconds: float) -> ChunkTimes:
    if not seconds:
        return times
    start, end = times.compute
    return msgspec.structs.replace(times, compute=(start, end - seconds))
