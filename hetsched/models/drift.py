"""When what was known of a device no longer holds: it has become slower, or faster again."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

BELIEVED = 3
"""Observations in a row that must all differ: one or two may be a neighbour's doing."""
MOVED = 1.2
"""Less is noise: a core's speed varies by several percent on a quiet machine. Arbitrary."""
NEAR = 1.5
"""Sizes that differ by less are compared, by their seconds a unit: while a change is being
followed, no size comes twice."""
SETTLED = 2
"""Observations before, of a size or near it, that say what it used to take."""
LATEST = 5
"""Of those before, so many count."""

Observed = tuple[float, float]
"""Units, seconds."""


def since_change(observations: Sequence[Observed]) -> int:
    """How many of the first observations a change has made worthless; 0: none has been seen.

    A busy neighbour slows a core down for minutes. Shares then shrink, and the sizes around the
    old share are not visited again: their knots would tell of the old speed for ever, a wall that
    shares never grow over once the neighbour has gone. So when the last `BELIEVED` observations
    are all slower (or all faster) by `MOVED` than the same sizes were before, everything before
    them is forgotten. Forgotten rather than scaled: a mistake then costs one run, not several at
    every size.

    Parameters
    ----------
    observations : sequence of (units, seconds)
        Of whole shares of one device, oldest first.
    """
    first = len(observations) - BELIEVED
    if first < SETTLED:
        return 0
    before = observations[:first]
    ratios = [_ratio(before, one) for one in observations[first:]]
    known = [ratio for ratio in ratios if ratio is not None]
    if len(known) < BELIEVED:
        return 0
    return first if min(known) > MOVED or max(known) < 1 / MOVED else 0


def _ratio(before: Sequence[Observed], one: Observed) -> float | None:
    """Seconds a unit over what they were; None: not known."""
    units, seconds = one
    comparable = [t / x for x, t in before if x == units]
    if len(comparable) < SETTLED:
        comparable = [t / x for x, t in before if units / NEAR <= x <= units * NEAR]
    if len(comparable) < SETTLED:
        return None
    return seconds / units / median_low(comparable[-LATEST:])
