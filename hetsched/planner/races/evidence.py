"""What a run with several variants shows: samples of each variant, and paces of the race. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hetsched.device import ChunkTimes
from hetsched.models.call_cost import call_samples
from hetsched.models.evidence.races import Race, race_paces
from hetsched.models.evidence.samples import (
    Sample,
    as_contended,
    contended_pace,
    is_contended,
    is_time,
    run_samples,
)
from hetsched.planner.records import Assignment

Chunks = Sequence[tuple[int, ChunkTimes]]
"""Units and times of each chunk of one core, in the order in which they ran."""


def variant_samples(assignment: Assignment, chunks: Chunks) -> dict[str, list[Sample]]:
    """Return the samples of each variant that computed chunks of a core.

    The total of a variant is that of the whole share, by the median pace of its chunks; in a
    contended run by `contended_pace`, as the other process also interrupts the next run.
    """
    is_disturbed = is_contended(chunks)
    samples: dict[str, list[Sample]] = {}
    for kernel, variant in enumerate(assignment.variants):
        own = [(units, times) for units, times in chunks if times.kernel == kernel]
        if own:
            share = sum(units for units, _ in own)
            seconds = sum(times.end - times.start for _, times in own)
            found = run_samples(own, (), share, seconds, link=False)
            warm = [chunk for chunk in own if not chunk[1].cold] or own
            pace = contended_pace(warm, chunks) if is_disturbed else _median_pace(warm)
            share = assignment.plan.share
            found = as_contended(found) if is_disturbed else found
            samples[variant] = [_of_share(s, pace, share) for s in found] + call_samples(own)
    return samples


def with_fresh_race(
    assignment: Assignment,
    chunks: Chunks,
    seconds: float,
    samples: Mapping[str, list[Sample]],
) -> dict[str, list[Sample]]:
    """Return `samples`, with the time of the whole share by each variant in a fresh process.

    The run took longer than its chunks by the paces of their variants: by the same ratio, the
    share would have taken longer with each variant alone.

    Parameters
    ----------
    seconds : float
        Of the core in this run.
    samples : mapping of variant to samples
        As `variant_samples` returns them.
    """
    totals = {
        variant: next((sample for sample in warm if sample.curve == "total"), None)
        for variant, warm in samples.items()
    }
    expected = 0.0
    for units, times in chunks:
        total = totals.get(assignment.variants[times.kernel])
        if total is None:
            return dict(samples)
        expected += units * total.seconds / total.units
    return {
        variant: [*warm, *_as_cold(totals[variant], seconds / expected)]
        for variant, warm in samples.items()
    }


def _as_cold(total: Sample | None, ratio: float) -> list[Sample]:
    if total is None or not is_time(total.seconds * ratio):
        return []
    return [replace(total, curve="cold", seconds=total.seconds * ratio)]


def _of_share(sample: Sample, pace: float, share: int) -> Sample:
    if sample.curve != "total":
        return sample
    return replace(sample, units=share, seconds=pace * share)


def _median_pace(chunks: Chunks) -> float:
    return statistics.median((times.end - times.start) / units for units, times in chunks)


def race_of(
    number: int, assignments: Sequence[Assignment], chunks: Mapping[str, Chunks]
) -> Race | None:
    """Return the race of equal cores in one run; None if nothing can be compared.

    Parameters
    ----------
    number : int
        Runs of the job before this one.
    assignments : sequence of Assignment
        Of the cores, all with the same variants.
    chunks : mapping of device to chunks
    """
    variants = assignments[0].variants
    paces: dict[str, list[float | None]] = {variant: [] for variant in variants}
    for assignment in assignments:
        own = chunks[assignment.device][: assignment.race_chunks]
        timed = [(u, t.end - t.start, t.kernel, t.cold) for u, t in own]
        for variant, found in race_paces(timed, variants).items():
            paces[variant] += found
    raced = {v: tuple(found) for v, found in paces.items() if any(found)}
    if len(raced) < 2:
        return None
    shares = [assignment.plan.share for assignment in assignments]
    return Race(number, statistics.fmean(shares), raced)
