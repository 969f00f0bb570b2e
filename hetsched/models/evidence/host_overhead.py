"""Host overhead: the processor time that a device's process takes to submit, copy and wait.

A core pays it, and computes more slowly meanwhile. The model of a core covers only its own work:
the planner adds the host overhead of the plan at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hetsched.device import ChunkTimes

TimedChunks = Sequence[tuple[int, ChunkTimes]]
"""(units, times) of each chunk, in the order in which they ran."""


def overhead_seconds(chunks: TimedChunks) -> float:
    """Sum the host overhead of these chunks, in seconds; 0 where it wasn't measured."""
    return sum(times.host_overhead for _, times in chunks if times.host_overhead is not None)


def overhead_by_core(cores: Mapping[str, TimedChunks], seconds: float) -> dict[str, float]:
    """Divide `seconds` of host overhead among the cores that lost time while they computed.

    A core that the job didn't have to itself ran other processes, ours or not: it is assumed that
    host overhead caused as much of the loss as it can have, on each core in proportion.
    """
    losses = {name: sum(_lost(times) for _, times in chunks) for name, chunks in cores.items()}
    total = sum(losses.values())
    ratio = min(1.0, seconds / total) if total > 0 else 0.0
    return {name: ratio * loss for name, loss in losses.items()}


def without_overhead(chunks: TimedChunks, seconds: float) -> tuple[tuple[int, ChunkTimes], ...]:
    """Shorten the computations of `chunks` by `seconds` in all, each in proportion to its loss."""
    total = sum(_lost(times) for _, times in chunks)
    ratio = seconds / total if total > 0 else 0.0
    return tuple((units, _shortened(times, ratio * _lost(times))) for units, times in chunks)


def _lost(times: ChunkTimes) -> float:
    """Seconds of a computation in which another process had the core."""
    start, end = times.compute
    return 0.0 if times.busy is None else max(0.0, end - start - times.busy)


def _shortened(times: ChunkTimes, seconds: float) -> ChunkTimes:
    if not seconds:
        return times
    start, end = times.compute
    return msgspec.structs.replace(times, compute=(start, end - seconds))
