"""What a run shows: samples of each device's curves, and races of variants. Pure.

The only source of evidence, of the engine and of simulations alike.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.models.races import Race, race_paces
from hetsched.models.samples import CoRunners, Sample, TimedChunks, run_samples, without_total
from hetsched.planner.neighbours import co_runners_end, co_runners_of
from hetsched.planner.records import Assignment, JobPlan


@dataclass(frozen=True)
class DeviceRun:
    assignment: Assignment
    info: DeviceInfo
    # Units and times of each, in order of execution, on the device's clock; of very many chunks,
    # neighbours are merged
    chunks: tuple[tuple[int, ChunkTimes], ...]

    @functools.cached_property
    def span(self) -> tuple[float, float]:
        """Start and end, seconds; (0, 0) without chunks. Kept: every result needs it."""
        if not self.chunks:
            return 0.0, 0.0
        return self.chunks[0][1].start, max([times.end for _, times in self.chunks])

    @property
    def seconds(self) -> float:
        start, end = self.span
        return end - start

    @property
    def share(self) -> int:
        return sum([units for units, _ in self.chunks])

    @property
    def pace(self) -> float:
        """Seconds per unit; only with chunks."""
        return self.seconds / self.share

    @property
    def is_merged(self) -> bool:
        """Whether records of neighbouring chunks were merged, as in very long runs."""
        return max([units for units, _ in self.chunks]) > self.assignment.max_chunk


@dataclass(frozen=True)
class Run:
    """A run in which no device was lost. `machine`: all its devices, or those of the run."""

    plan: JobPlan
    devices: Mapping[str, DeviceRun]
    machine: Sequence[DeviceInfo] = ()
    is_contended: bool = False  # Other jobs ran on the same cores: it took longer than alone

    @property
    def paces(self) -> dict[str, float]:
        """Device -> seconds per unit, of those that computed."""
        return {device: run.pace for device, run in self.devices.items() if run.chunks}


class Lessons(NamedTuple):
    """`samples`: by device, variant and co-runners; `races`: by kind of core."""

    samples: dict[tuple[str, str, CoRunners], list[Sample]]
    races: dict[str, Race]


def learn(run: Run) -> Lessons:
    working = [each for each in run.devices.values() if each.chunks]
    counted = [each for each in working if not each.assignment.is_probe]
    infos = [each.info for each in counted]
    beside = co_runners_of(infos, run.machine)
    for each in working:
        name = each.info.name
        if each.assignment.is_probe:  # too short to be a co-runner of others
            beside[name] = co_runners_of([*infos, each.info], run.machine)[name]
    until = co_runners_end(
        [each.info for each in working], [(each.info, each.span[1]) for each in counted]
    )
    start = min((each.span[0] for each in working if each.info.clock == "wall"), default=0.0)
    samples: dict[tuple[str, str, CoRunners], list[Sample]] = {}
    for each in working:
        name = each.info.name
        for variant, found in _samples(each, until[name], start).items():
            samples[name, variant, beside[name]] = found
    return Lessons(samples, {} if run.is_contended else dict(_races(working)))


def _samples(run: DeviceRun, until: float, start: float) -> dict[str, list[Sample]]:
    """Return the samples of each variant. `until`: as of `run_samples`.

    `start`: of the run, as fresh processes may start later than others.
    """
    assignment, share = run.assignment, run.assignment.plan.share
    if assignment.rivals:
        return {} if run.is_merged else _variant_samples(assignment, run.chunks)
    is_fresh = run.info.is_core and run.info.clock == "wall" and run.chunks[0][1].cold
    samples = run_samples(
        run.chunks,
        assignment.plan.sub_distributions,
        run.share,
        run.span[1] - (start if is_fresh else run.span[0]),
        link=run.info.link,
        planned=share,
        until=until,
    )
    if run.is_merged:
        samples = samples[-1:]  # the whole share
    if (candidate := assignment.candidate) is not None:
        # Chunks behind a link that were cut without a model, or to measure their sizes, don't tell
        # how long a share takes.
        is_odd = assignment.model is None or assignment.purpose == "sizes"
        if candidate.is_constrained or (candidate.info.link and is_odd):
            samples = without_total(samples, run.chunks)
    return {assignment.variant: samples}


def _variant_samples(assignment: Assignment, chunks: TimedChunks) -> dict[str, list[Sample]]:
    """Return the samples of each variant; its total is that of the share, by its median pace."""
    samples: dict[str, list[Sample]] = {}
    for kernel, variant in enumerate(assignment.variants):
        own = [(units, times) for units, times in chunks if times.kernel == kernel]
        if own:
            seconds = sum(times.end - times.start for _, times in own)
            found = run_samples(own, (), sum(units for units, _ in own), seconds, link=False)
            warm = [chunk for chunk in own if not chunk[1].cold] or own
            pace = statistics.median((times.end - times.start) / units for units, times in warm)
            share = assignment.plan.share
            samples[variant] = [
                replace(each, units=share, seconds=pace * share) if each.curve == "total" else each
                for each in found
            ]
    return samples


def _races(working: Sequence[DeviceRun]) -> Iterator[tuple[str, Race]]:
    """Yield the races of equal cores of which something can be compared, by kind of core."""
    groups: dict[str, list[DeviceRun]] = {}
    for run in working:
        if run.assignment.rivals and not run.is_merged:
            groups.setdefault(run.info.identity, []).append(run)
    for identity, group in groups.items():
        paces: dict[str, list[float | None]] = {}
        for run in group:
            for variant, found in race_paces(run.chunks, group[0].assignment.variants).items():
                paces.setdefault(variant, []).extend(found)
        raced = {variant: tuple(found) for variant, found in paces.items() if any(found)}
        if len(raced) > 1:
            candidates = [run.assignment.candidate for run in group]
            counts = [max(c.run_counts.values(), default=0) for c in candidates if c is not None]
            units = statistics.fmean(run.assignment.plan.share for run in group)
            yield identity, Race(max(counts, default=0), units, raced)


# ---- times of a whole run


def makespan(devices: Mapping[str, DeviceRun]) -> float:
    """Return the seconds from first start to last end; of virtual clocks the longest time."""
    longest, first, last, is_virtual = 0.0, math.inf, -math.inf, False
    for run in devices.values():
        if run.chunks:
            start, end = run.span
            longest = max(longest, end - start)
            first, last = min(first, start), max(last, end)
            is_virtual = is_virtual or run.info.clock == "virtual"
    return longest if is_virtual else max(0.0, last - first)


def spread(devices: Mapping[str, DeviceRun]) -> float:
    """Return (max - min) / min of the times of devices with a share but a probe; 0 of one."""
    seconds = [
        run.seconds for run in devices.values() if run.chunks and not run.assignment.is_probe
    ]
    if len(seconds) < 2 or min(seconds) <= 0:
        return 0.0
    return (max(seconds) - min(seconds)) / min(seconds)
