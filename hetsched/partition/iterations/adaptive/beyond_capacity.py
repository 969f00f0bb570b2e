"""Times of shares larger than a device's memory.

What doesn't fit is streamed or paged, so each further row costs more than those that fit: the time
is a line from the capacity on, with another slope. A few rows show that slope.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import pairwise

import numpy as np

from hetsched.models.curves.segments import Floats
from hetsched.partition.distribution import Limits

MIN_EXCESS = 1 / 64
"""Part of the capacity by which it is exceeded first: as much is learnt from a few rows, and few
have to move back."""
EXCESS_GROWTH = 8
"""How many times the largest measured excess a line through it is trusted. Arbitrary."""
PIECES = 4
"""Pieces of linear speed that stand for a line of times."""
MAX_MISS = 1.2
"""Ratio of a time to that of the line above which there is another cliff. Arbitrary."""


def first_excess(capacity: int) -> int:
    """Return the share, units, with which the capacity is exceeded first."""
    return capacity + max(1, math.ceil(MIN_EXCESS * capacity))


def trusted_size(capacity: int, largest: int) -> int:
    """Return up to which size, units, the line through `largest` units is trusted."""
    return capacity + EXCESS_GROWTH * (largest - capacity)


def trusted_limits(devices: Collection[int], limits: Limits, trusted: Limits, load: int) -> Limits:
    """Return the limits, lower where lines beyond capacities end, if `devices` have room then.

    Parameters
    ----------
    devices : collection of int
        Those that take part.
    limits, trusted : sequence of int or None, units
        Of all devices; None: none.
    """
    lower = [
        trust if limit is None or (trust is not None and trust < limit) else limit
        for limit, trust in zip(limits, trusted, strict=True)
    ]
    has_room = sum(load if (limit := lower[i]) is None else limit for i in devices) >= load
    return lower if has_room else limits


def with_capacity(points: Floats, capacity: int | None) -> Floats:
    """Add the capacity to (n, 2) points, units and seconds, if sizes on both sides were measured.

    Up to there the pace, seconds per unit, is presumed to be that of the size below.
    """
    units = points[:, 0]
    above = int(np.searchsorted(units, capacity or 0))
    if capacity is None or above in (0, len(units)) or units[above] == capacity:
        return points
    seconds = points[above - 1, 1] / units[above - 1] * capacity
    return np.insert(points, above, (float(capacity), seconds), axis=0)


def with_lines(points: Floats, capacity: int | None) -> Floats:
    """Add knots of the lines between points from the capacity on, and of the line that follows.

    The last line is that from the capacity to the largest size: differences of two sizes beyond
    it are mostly noise.
    """
    first = int(np.searchsorted(points[:, 0], capacity or 0))
    if capacity is None or first >= len(points) - 1 or points[first, 0] != capacity:
        return points
    start, end = points[first], points[-1]
    pace = end[1] / end[0]
    slope = max((end[1] - start[1]) / (end[0] - start[0]), pace)
    reach = float(trusted_size(capacity, int(end[0])))
    corners = np.vstack([points[first:], [reach, end[1] + slope * (reach - end[0])]])
    lines = [
        np.linspace(before, after, PIECES, endpoint=False) for before, after in pairwise(corners)
    ]
    return np.vstack([points[:first], *lines, corners[-1:]])


def is_on_line(points: Floats, capacity: int | None, index: int) -> bool:
    """Return whether a size beyond the capacity takes no longer than the line to it suggests.

    The first size beyond it has none; the way there is one if it is short.
    """
    first = int(np.searchsorted(points[:, 0], capacity or 0))
    if capacity is None or first >= index or points[first, 0] != capacity:
        return False
    units, seconds = points[index]
    if first == index - 1:
        return bool(units <= first_excess(capacity))
    (start, start_seconds), (before, before_seconds) = points[first], points[index - 1]
    slope = max((before_seconds - start_seconds) / (before - start), start_seconds / start)
    return bool(seconds <= MAX_MISS * (before_seconds + slope * (units - before)))
