"""The devices of one run: their chunks, shares and times. Pure."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.planner.records import Assignment, JobPlan


@dataclass(frozen=True)
class DeviceRun:
    """One device in one run.

    Attributes
    ----------
    chunks : tuple of (int, ChunkTimes)
        Units and times of each chunk, in order of execution, on the device's clock; of very many
        chunks, neighbours are merged.
    """

    assignment: Assignment
    info: DeviceInfo
    chunks: tuple[tuple[int, ChunkTimes], ...]

    @functools.cached_property
    def span(self) -> tuple[float, float]:
        """Start of its first phase and end of its last, seconds; (0, 0) without chunks.

        Computed once: it is on the way of every result.
        """
        starts = [times.start for _, times in self.chunks]
        ends = [times.end for _, times in self.chunks]
        return min(starts, default=0.0), max(ends, default=0.0)

    @property
    def seconds(self) -> float:
        """Seconds from the start of its first phase to the end of its last."""
        start, end = self.span
        return end - start

    @property
    def share(self) -> int:
        """Units that it computed."""
        return sum([units for units, _ in self.chunks])

    @property
    def is_merged(self) -> bool:
        """Whether records of neighbouring chunks were merged, as in very long runs."""
        return any(units > self.assignment.max_chunk for units, _ in self.chunks)


@dataclass(frozen=True)
class FinishedRun:
    """A run in which no device was lost.

    Attributes
    ----------
    runs : mapping
        Device -> its part of the run.
    is_contended : bool
        Other jobs ran on the same cores: their times aren't those of a job that runs alone.
    fresh : frozenset of str
        Devices whose process ran its variant for the first time.
    """

    plan: JobPlan
    runs: Mapping[str, DeviceRun]
    is_contended: bool = False
    fresh: frozenset[str] = frozenset()


def run_start(runs: Mapping[str, DeviceRun]) -> float:
    """Return the first start of a device with a real clock, seconds on that clock."""
    return min(run.span[0] for run in runs.values() if run.chunks and run.info.clock == "wall")


def makespan(runs: Mapping[str, DeviceRun]) -> float:
    """Return the seconds from the first start to the last end over all devices.

    Virtual clocks all start at 0; with them it is the longest time of a device.
    """
    longest, first, last, is_virtual = 0.0, math.inf, -math.inf, False
    for run in runs.values():
        if run.chunks:
            start, end = run.span
            longest = max(longest, end - start)
            first, last = min(first, start), max(last, end)
            is_virtual = is_virtual or run.info.clock == "virtual"
    return longest if is_virtual else max(0.0, last - first)


def spread(runs: Mapping[str, DeviceRun]) -> float:
    """Return (max - min) / min of the times of devices with a share; 0 for fewer than two.

    Probes don't count.
    """
    seconds = [run.seconds for run in runs.values() if run.chunks and not run.assignment.is_probe]
    if len(seconds) < 2 or min(seconds) <= 0:
        return 0.0
    return (max(seconds) - min(seconds)) / min(seconds)
