"""What a copy costs while the other direction is busy, told from the times of one run's chunks.

Both directions share the host's memory and the bus, so that each keeps a share u <= 1 of its pace
while the other is busy (`DeviceModel.duplex`). A copy that would take w seconds alone, and is
beside another one for o of its d seconds, has done d - o + u o = w of work by its end.

Ilic & Sousa know one pace a direction, measured while the other was idle or not as it happened.
"""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.models.evidence.confidence import middle

Span = tuple[float, float]
"""Start and end, seconds."""
Copy = tuple[int, Span]
"""Units, start and end."""

ALONE = 0.02
"""Share of a copy that may be beside another one for it to count as alone."""
BESIDE = 0.5
"""Share from which on it tells how much slower it is beside another one."""
ALIKE = 1.1
"""Copies whose sizes differ by less are compared by their seconds a unit."""
LEAST = 0.05
"""Share below which a copy didn't merely share: something else stopped it."""


def one_way(copies: Sequence[Copy], others: Sequence[Span]) -> list[tuple[int, float]]:
    """Units and seconds of the copies of one direction as if the other one had been idle.

    Parameters
    ----------
    copies : sequence of (int, (float, float)), units and seconds
        Units, start and end of each copy of one direction.
    others : sequence of (float, float), seconds
        Start and end of the copies of the other direction.

    Returns
    -------
    list of (int, float), units and seconds
        Of the copies that were alone. Of all, as they were, where none of about their size was.
    """
    found = _found(copies, others)
    alone = [(units, seconds) for units, seconds, beside in found if beside <= ALONE * seconds]
    return [
        (units, seconds)
        for units, seconds, beside in found
        if beside <= ALONE * seconds or _pace(units, alone) is None
    ]


def beside(copies: Sequence[Copy], others: Sequence[Span]) -> list[tuple[int, float]]:
    """Units and seconds of the copies of one direction as if the other one had been busy always.

    Parameters as of `one_way`. Of copies that were beside others for half of their time or more,
    and of which one of about their size was alone: w / u.
    """
    found = _found(copies, others)
    alone = [(units, seconds) for units, seconds, beside in found if beside <= ALONE * seconds]
    slowed = []
    for units, seconds, shared in found:
        pace = _pace(units, alone)
        if pace is None or shared < BESIDE * seconds:
            continue
        work = pace * units
        share = (work - (seconds - shared)) / shared
        if share >= LEAST:
            slowed.append((units, work / min(share, 1.0)))
    return slowed


def _found(copies: Sequence[Copy], others: Sequence[Span]) -> list[tuple[int, float, float]]:
    """Units, seconds, and seconds beside a copy of the other direction; O(copies + others)."""
    ordered, first, found = sorted(others), 0, []
    for units, (start, end) in sorted(copies, key=lambda one: one[1]):
        while first < len(ordered) and ordered[first][1] <= start:
            first += 1
        shared, index = 0.0, first
        while index < len(ordered) and ordered[index][0] < end:
            shared += min(end, ordered[index][1]) - max(start, ordered[index][0])
            index += 1
        found.append((units, end - start, shared))
    return found


def _pace(units: int, alone: Sequence[tuple[int, float]]) -> float | None:
    """Seconds a unit of the copies of about this size that were alone."""
    paces = [seconds / size for size, seconds in alone if units / ALIKE <= size <= units * ALIKE]
    return middle(paces) if paces else None
