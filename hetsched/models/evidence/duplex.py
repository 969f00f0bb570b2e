"""The cost of a copy while the other direction is busy, derived from the times of a run's chunks.

Both directions share the host's memory and the bus, so each keeps a share u <= 1 of its rate
while the other is busy (`DeviceModel.duplex`). A copy that would take w seconds alone, and
overlaps the other direction for o of its d seconds, has done d - o + u o = w of work by its end.

Ilic & Sousa have a single rate per direction, regardless of the other direction's load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from hetsched.models.evidence.confidence import NARROW_HALF_WIDTH, robust_median

Span = tuple[float, float]
"""Start and end, seconds."""
Copy = tuple[int, Span]
"""Units, start and end."""

MAX_OVERLAP_ALONE = 0.02
"""Largest overlapping fraction of a copy that still counts as one-way."""
MIN_OVERLAP_DUPLEX = 0.5
"""Smallest overlapping fraction of a copy that is evidence of the duplex rate."""
MAX_SIZE_RATIO = 1.1
"""Copies whose sizes differ by less are compared by their seconds per unit."""
COPY_NOISE = 0.025
"""Assumed standard deviation of the logarithm of a copy's time. Arbitrary: a little more than on a
quiet machine."""
MIN_SHARE = 0.05
"""A smaller share of its rate is not an effect of the other direction: the copy was held up."""


def one_way_times(copies: Sequence[Copy], opposite: Sequence[Span]) -> list[tuple[int, float]]:
    """Estimate units and seconds of one direction's copies with the other direction idle.

    Parameters
    ----------
    copies : sequence of (int, (float, float)), units and seconds
        Units, start and end of each copy of one direction.
    opposite : sequence of (float, float), seconds
        Start and end of the copies of the other direction.

    Returns
    -------
    list of (int, float), units and seconds
        Of the one-way copies; where none of about their size exists, of all copies as measured.
    """
    overlaps = _overlaps(copies, opposite)
    paces = _one_way_paces(overlaps)
    return [
        (units, seconds)
        for units, seconds, overlap in overlaps
        if overlap <= MAX_OVERLAP_ALONE * seconds or paces[units] is None
    ]


def duplex_times(copies: Sequence[Copy], opposite: Sequence[Span]) -> list[tuple[int, float]]:
    """Estimate units and seconds of one direction's copies with the other always busy.

    Parameters: as for `one_way_times`. The result is w / u for each copy that overlapped the other
    direction for at least half of its time and is of about the size of a one-way copy.
    """
    overlaps = _overlaps(copies, opposite)
    paces = _one_way_paces(overlaps)
    slowed = []
    for units, seconds, overlap in overlaps:
        pace = paces[units]
        if pace is None or overlap < MIN_OVERLAP_DUPLEX * seconds:
            continue
        work = pace * units
        share = (work - (seconds - overlap)) / overlap
        if share >= MIN_SHARE:
            slowed.append((units, work / min(share, 1.0)))
    return slowed


def duplex_share(
    beside: Iterable[tuple[float, float, int]], one_way: Callable[[float], float], alone: int
) -> float:
    """Return the share of its rate that a direction keeps while the other one is busy.

    Parameters
    ----------
    beside : iterable of (float, float, int)
        Units, seconds and number of copies of each size while the other direction is busy.
    one_way : callable, units -> seconds
        The same copies alone.
    alone : int
        Copies from which `one_way` was learnt, at least 1. Its error is common to all sizes, so
        the share is 1 within the error of so many.
    """
    ratios: list[float] = []
    for units, seconds, count in beside:
        ratios += [one_way(units) / seconds] * count
    share = robust_median(ratios)
    error = NARROW_HALF_WIDTH + 2 * COPY_NOISE / math.sqrt(alone)
    return max(share, MIN_SHARE) if share < 1 - error else 1.0


def _overlaps(copies: Sequence[Copy], opposite: Sequence[Span]) -> list[tuple[int, float, float]]:
    """Return units, seconds, and seconds overlapping the other direction. O(copies + opposite)."""
    spans, first, overlaps = sorted(opposite), 0, []
    for units, (start, end) in sorted(copies, key=lambda copy: copy[1]):
        while first < len(spans) and spans[first][1] <= start:
            first += 1
        overlap, index = 0.0, first
        while index < len(spans) and spans[index][0] < end:
            overlap += min(end, spans[index][1]) - max(start, spans[index][0])
            index += 1
        overlaps.append((units, end - start, overlap))
    return overlaps


def _one_way_paces(overlaps: Sequence[tuple[int, float, float]]) -> dict[int, float | None]:
    """Return, for each size, the seconds per unit of copies while the other direction was idle.

    The median over copies of about this size; None without any. O(sizes x copies).
    """
    solo_copies = [
        (units, seconds / units)
        for units, seconds, overlap in overlaps
        if overlap <= MAX_OVERLAP_ALONE * seconds
    ]
    return {size: _pace_near(size, solo_copies) for size in {units for units, _, _ in overlaps}}


def _pace_near(units: int, solo_copies: Sequence[tuple[int, float]]) -> float | None:
    paces = [
        pace
        for size, pace in solo_copies
        if units / MAX_SIZE_RATIO <= size <= units * MAX_SIZE_RATIO
    ]
    return robust_median(paces) if paces else None
