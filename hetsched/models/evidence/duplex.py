"""What a copy costs while the other direction is busy, derived from the times of a run's chunks.

Both directions share the host's memory and the bus, so that each keeps a share u <= 1 of its rate
while the other is busy (`DeviceModel.duplex`). A copy that would take w seconds alone, and
overlaps the other direction for o of its d seconds, has done d - o + u o = w of work by its end.

Ilic & Sousa have a single rate per direction, however busy the other one was when it was measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.models.evidence.confidence import robust_median

Span = tuple[float, float]
"""Start and end, seconds."""
Copy = tuple[int, Span]
"""Units, start and end."""

MAX_OVERLAP_ALONE = 0.02
"""Fraction of a copy that may overlap the other direction for it to count as alone."""
MIN_OVERLAP_DUPLEX = 0.5
"""Fraction from which on a copy shows how much slower it is beside the other direction."""
MAX_SIZE_RATIO = 1.1
"""Copies whose sizes differ by less are compared by their seconds per unit."""
MIN_SHARE = 0.05
"""Share of its rate below which something other than the opposite direction stopped a copy."""


def one_way_times(copies: Sequence[Copy], opposite: Sequence[Span]) -> list[tuple[int, float]]:
    """Return units and seconds of one direction's copies as if the other had been idle.

    Parameters
    ----------
    copies : sequence of (int, (float, float)), units and seconds
        Units, start and end of each copy of one direction.
    opposite : sequence of (float, float), seconds
        Start and end of the copies of the other direction.

    Returns
    -------
    list of (int, float), units and seconds
        Of the copies that were alone. Of all, as they were, where none of about their size was.
    """
    overlaps = _overlaps(copies, opposite)
    solo_copies = _solo_copies(overlaps)
    return [
        (units, seconds)
        for units, seconds, overlap in overlaps
        if overlap <= MAX_OVERLAP_ALONE * seconds or _seconds_per_unit(units, solo_copies) is None
    ]


def duplex_times(copies: Sequence[Copy], opposite: Sequence[Span]) -> list[tuple[int, float]]:
    """Return units and seconds of one direction's copies as if the other had always been busy.

    Parameters as of `one_way_times`. Of the copies that overlapped the other direction for half of
    their time or more, and of about the size of one that was alone: w / u.
    """
    overlaps = _overlaps(copies, opposite)
    solo_copies = _solo_copies(overlaps)
    slowed = []
    for units, seconds, overlap in overlaps:
        pace = _seconds_per_unit(units, solo_copies)
        if pace is None or overlap < MIN_OVERLAP_DUPLEX * seconds:
            continue
        work = pace * units
        share = (work - (seconds - overlap)) / overlap
        if share >= MIN_SHARE:
            slowed.append((units, work / min(share, 1.0)))
    return slowed


def _overlaps(copies: Sequence[Copy], opposite: Sequence[Span]) -> list[tuple[int, float, float]]:
    """Units, seconds, and seconds that overlap the other direction; O(copies + opposite)."""
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


def _solo_copies(overlaps: Sequence[tuple[int, float, float]]) -> list[tuple[int, float]]:
    """Units and seconds of the copies during which the other direction was idle."""
    return [
        (units, seconds)
        for units, seconds, overlap in overlaps
        if overlap <= MAX_OVERLAP_ALONE * seconds
    ]


def _seconds_per_unit(units: int, solo_copies: Sequence[tuple[int, float]]) -> float | None:
    """The median of the copies of about this size that were alone."""
    paces = [
        seconds / size
        for size, seconds in solo_copies
        if units / MAX_SIZE_RATIO <= size <= units * MAX_SIZE_RATIO
    ]
    return robust_median(paces) if paces else None
