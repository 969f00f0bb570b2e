"""From the times of a run's chunks to samples of curves (Ilic & Sousa, sections 2 and 4).

Both directions of a link share the host's memory and the bus, so each copy keeps a share u <= 1 of
its rate while the other is busy (`DeviceModel.duplex`). A copy that would take w seconds alone,
and overlaps the other direction for o of its d seconds, has done d - o + u o = w of work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Annotated, Literal

import msgspec

from hetsched.device import ChunkTimes, total_seconds
from hetsched.models.confidence import robust_median
from hetsched.units import NUMBER_LIMIT

CurveName = Literal["total", "compute", "h2d", "d2h", "h2d_beside", "d2h_beside"]
"""The four curves of a device, and copies while the other direction is busy."""
CoRunners = Literal["none", "some", "all"]
"""How many of a device's neighbours were busy while it was measured: devices that share memory
bandwidth slow each other down (`planner.neighbours`)."""
CO_RUNNERS: tuple[CoRunners, ...] = ("none", "some", "all")
"""Fewest first."""

Span = tuple[float, float]
"""Start and end, seconds."""
Copy = tuple[int, Span]
"""Units, start and end."""

MAX_OVERLAP_ALONE = 0.02
"""Largest overlapping fraction of a copy that still counts as one-way."""
MAX_SIZE_RATIO = 1.1
"""Sizes that differ by less are compared by their seconds per unit."""
MIN_SHARE = 0.05
"""A smaller share of its rate is not an effect of the other direction: the copy was held up."""
MIN_SECONDS, MAX_SECONDS = 1e-18, 1e18
"""Shorter and longer ones aren't times, but of a broken clock, for example. So far apart that
ratios of times can be computed."""

Count = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_LIMIT - 1)]
Units = Annotated[float, msgspec.Meta(gt=0, le=NUMBER_LIMIT - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=MIN_SECONDS, le=MAX_SECONDS)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]
"""Seconds since the epoch."""


TimedChunks = Sequence[tuple[int, ChunkTimes]]
"""(units, times) of each chunk, in execution order."""


class Sample(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`units` took `seconds`: one observation of one curve of a device. Stored like that.

    `run`: of its model, from 1. `at`: when it was learnt. The limits hold for decoded ones.
    """

    curve: CurveName
    units: Units
    seconds: Seconds
    run: Count = 0
    at: Moment = 0.0


def is_time(seconds: float) -> bool:
    return MIN_SECONDS <= seconds <= MAX_SECONDS


def run_samples(
    chunks: TimedChunks,
    sub_distributions: Sequence[Sequence[int]],
    share: int,
    wall: float,
    *,
    link: bool | None = None,
    planned: int | None = None,
    until: float = math.inf,
) -> list[Sample]:
    """Return the observations from one device's part of one run, of `share` units.

    `wall`: seconds from the first chunk's start to the last one's end. `link`: whether copies
    belong to the device; None: if there were any. `planned`: the share of a core that took chunks
    from a tail, for which its total is reported: it takes more when it is fast, so the times of
    what it computed are about equal at all sizes. `until`: when the first of its co-runners
    finished: chunks that a device with a link computed later ran faster, and their sizes, often
    the smallest, would seem fast. They count only if all were later.

    With a link each chunk counts for compute, for h2d and d2h (alone, or beside the other), and
    the sum of its phases for total; so does each of several sub-distributions that ran as planned,
    and the whole share. Without: each chunk for compute, the share for total. Phases too short for
    the clock are omitted, and the first chunk of a kernel in its process (`ChunkTimes.cold`)
    unless all are cold.
    """
    if link is None:
        link = any(times.copy_in or times.copy_out for _, times in chunks)
    warm = [chunk for chunk in chunks if not chunk[1].cold] or list(chunks)
    if planned is not None and [units for units, times in chunks if times.taken]:
        share, wall = planned, wall * planned / max(share, 1)
    if link:
        warm = [chunk for chunk in warm if chunk[1].compute[1] <= until] or warm
    samples = [Sample("compute", u, t.compute[1] - t.compute[0]) for u, t in warm]
    if link:
        samples += _copies(warm, chunks)
        # A single chunk is the whole share, whose wall time is the better observation.
        if len(chunks) > 1:
            samples += [
                Sample(
                    "total", units, total_seconds((times.copy_in, times.compute, times.copy_out))
                )
                for units, times in warm
            ]
        if len(sub_distributions) > 1:
            samples += _sub_distribution_samples(chunks, sub_distributions)
    samples.append(Sample("total", share, wall))
    return [s for s in samples if s.units > 0 and MIN_SECONDS <= s.seconds <= MAX_SECONDS]


def without_total(samples: Sequence[Sample], chunks: TimedChunks) -> list[Sample]:
    """Drop the time of the whole share: its chunks weren't those of the best plan."""
    sizes = {units for units, _ in chunks}
    return [sample for sample in samples if sample.curve != "total" or sample.units in sizes]


def medians(samples: Iterable[Sample]) -> list[Sample]:
    """Return the median of each curve and size of one run: its repeats aren't independent."""
    repeats: dict[tuple[CurveName, float], list[Sample]] = {}
    for sample in samples:
        repeats.setdefault((sample.curve, sample.units), []).append(sample)
    return [
        same[0]
        if len(same) == 1
        else Sample(*key, robust_median([sample.seconds for sample in same]))
        for key, same in repeats.items()
    ]


def _copies(observed: TimedChunks, chunks: TimedChunks) -> Iterator[Sample]:
    """Yield the copies of `observed`, a part of `chunks`: alone, or beside the other direction.

    Where none of about their size ran alone, all count as if they had. Of copies that overlapped
    the other direction for at least half of their time: w / u, as if it had been busy all along.
    """
    directions: tuple[tuple[CurveName, CurveName], ...] = (
        ("h2d", "h2d_beside"),
        ("d2h", "d2h_beside"),
    )
    fields = "copy_in", "copy_out"
    for (alone, beside), field, other in zip(directions, fields, reversed(fields), strict=True):
        overlaps = _overlaps(_spans(observed, field), [s for _, s in _spans(chunks, other)])
        paces = _one_way_paces(overlaps)
        for units, seconds, overlap in overlaps:
            pace = paces[units]
            if pace is None or overlap <= MAX_OVERLAP_ALONE * seconds:
                yield Sample(alone, units, seconds)
            elif overlap >= 0.5 * seconds:
                share = (pace * units - (seconds - overlap)) / overlap
                if share >= MIN_SHARE:
                    yield Sample(beside, units, pace * units / share)


def _spans(chunks: TimedChunks, field: str) -> list[Copy]:
    spans = ((units, getattr(times, field)) for units, times in chunks)
    return [copy for copy in spans if copy[1] and copy[1][1] > copy[1][0]]  # clocks may give none


def _overlaps(copies: Sequence[Copy], opposite: Sequence[Span]) -> list[tuple[int, float, float]]:
    """Return units, seconds, and seconds overlapping the other direction."""
    spans, first, overlaps = sorted(opposite), 0, []
    for units, (start, end) in sorted(copies, key=itemgetter(1)):
        while first < len(spans) and spans[first][1] <= start:
            first += 1
        overlap, index = 0.0, first
        while index < len(spans) and spans[index][0] < end:
            overlap += min(end, spans[index][1]) - max(start, spans[index][0])
            index += 1
        overlaps.append((units, end - start, overlap))
    return overlaps


def _one_way_paces(overlaps: Sequence[tuple[int, float, float]]) -> dict[int, float | None]:
    """Return size -> the median seconds per unit of such copies while the other was idle."""
    alone = [
        (units, seconds / units)
        for units, seconds, overlap in overlaps
        if overlap <= MAX_OVERLAP_ALONE * seconds
    ]
    paces: dict[int, float | None] = {}
    for size in {units for units, _, _ in overlaps}:
        near = [p for x, p in alone if size / MAX_SIZE_RATIO <= x <= size * MAX_SIZE_RATIO]
        paces[size] = robust_median(near) if near else None
    return paces


def _sub_distribution_samples(
    chunks: TimedChunks, sub_distributions: Sequence[Sequence[int]]
) -> Iterator[Sample]:
    first = 0
    for planned in sub_distributions:
        ran = chunks[first : first + len(planned)]
        if [units for units, _ in ran] != list(planned):
            return
        if ran:
            start = min(times.start for _, times in ran)
            end = max(times.end for _, times in ran)
            yield Sample("total", sum(planned), end - start)
        first += len(planned)
