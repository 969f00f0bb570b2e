"""Host overhead: the processor time that a device's process takes to submit, copy and wait.

It slows down the core on which it runs. A core's model covers only the core's own chunks; the
planner adds the host overhead of the plan at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from hetsched.device import ChunkTimes

TimedChunks = Sequence[tuple[int, ChunkTimes]]
"""(units, times) of each chunk, in execution order."""


def overhead_seconds(chunks: TimedChunks) -> float:
    """Sum the host overhead of these chunks, in seconds; 0 where it wasn't measured."""
    return sum(times.host_overhead for _, times in chunks if times.host_overhead is not None)


def overhead_by_core(cores: Mapping[str, TimedChunks], seconds: float) -> dict[str, float]:
    """Divide `seconds` of host overhead among the cores that lost time while they computed.

    The loss may have other causes, in our processes or others. As much of it as possible is
    attributed to host overhead, in proportion to each core's loss.
    """
    losses = {
        name: sum(_lost_seconds(times) for _, times in chunks) for name, chunks in cores.items()
    }
    total = sum(losses.values())
    ratio = min(1.0, seconds / total) if total > 0 else 0.0
    return {name: ratio * loss for name, loss in losses.items()}


def without_overhead(chunks: TimedChunks, seconds: float) -> tuple[tuple[int, ChunkTimes], ...]:
    """Shorten the computations of `chunks` by `seconds` in all, each in proportion to its loss."""
    total = sum(_lost_seconds(times) for _, times in chunks)
    ratio = seconds / total if total > 0 else 0.0
    return tuple(
        (units, _shortened(times, ratio * _lost_seconds(times))) for units, times in chunks
    )


def _lost_seconds(times: ChunkTimes) -> float:
    """Return the seconds of a computation during which another process had the core."""
    start, end = times.compute
    return 0.0 if times.busy is None else max(0.0, end - start - times.busy)


def _shortened(times: ChunkTimes, seconds: float) -> ChunkTimes:
    if not seconds:
        return times
    start, end = times.compute
    return msgspec.structs.replace(times, compute=(start, end - seconds))
