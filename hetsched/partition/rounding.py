"""From real shares to whole units, without losing the optimum.

Greedy: each unit goes to the device that ends first with it. For nondecreasing times that gives
the least makespan (Ibaraki & Katoh 1988, Resource Allocation Problems, chapter 4), and the units
that it hands out are those of the earliest ends, whatever the order: one partial sort finds them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched.errors import UsageError
from hetsched.partition.distribution import Limits, Models, checked
from hetsched.partition.time_inverse import Reach, Units

MOST_LEFT = 1 << 22
"""Units that rounding moves at most: it compares the times of all of them at once."""
OFFER = 2
"""Units that each device offers to take at first; it offers twice as many when all are taken."""


def round_greedy(
    models: Models, parts: Sequence[float], load: int, most: Limits | None = None
) -> list[int]:
    """Floor `parts`, then hand out what is left, each unit to the device that ends first with it.

    Exactly optimal for nondecreasing times if every device's part takes it at most some common
    time and the parts sum to the load at most: greedy from zero would pass through these shares.
    Where they sum to more, units are taken back, each from the device that ends last.

    Parameters
    ----------
    models : sequence of SpeedFunction
    parts : sequence of float, units
        One a device.
    load : int, units
    most : sequence of int or None, units, optional
        The most that each device takes.

    Returns
    -------
    list of int, units
        Summing to the load; ties go to the first device. O((p + r) log(pieces)) for r units left
        after flooring.

    Raises
    ------
    UsageError, DataError
        Malformed; the limits leave no room for the load.
    """
    load, limits = checked(models, load, most)
    try:
        real = np.asarray(parts, dtype=np.float64)
    except (TypeError, ValueError):
        real = np.empty(0)
    if real.shape != (len(limits),) or not (real >= 0).all():
        shown = repr(parts)[:60]
        raise UsageError(f"parts: {shown}, they must be {len(limits)} numbers of 0 or more")
    whole = np.minimum(real, limits).astype(np.int64)
    left = load - sum(whole.tolist())
    if abs(left) > MOST_LEFT:
        raise UsageError(f"parts: they are {left} units short of the load, at most {MOST_LEFT}")
    shares: list[int] = rounded(Reach(models, limits), whole, load).tolist()
    return shares


def rounded(reach: Reach, shares: Units, load: int) -> Units:
    """(p,) int64, units: `shares`, with units handed out or taken back so that they sum to `load`.

    The limits of `reach` leave room for the load.
    """
    left = load - sum(shares.tolist())
    if left > 0:
        return _moved(reach, shares, left, reach.most - shares, 1)
    if left < 0:
        return _moved(reach, shares, -left, shares, -1)
    return shares


def _moved(reach: Reach, shares: Units, count: int, room: Units, step: int) -> Units:
    """`count` units more (step 1) or fewer (-1), those that end first, or last; `room` a device.

    Each device offers its next few units; the times of all are compared at once. The cut is final
    when no device had all of its offers below it and more to offer.
    """
    room = np.minimum(room, count)
    offers = np.minimum(room, OFFER)
    while True:
        devices = np.repeat(np.arange(len(shares)), offers)
        nth = np.arange(len(devices)) - np.repeat(np.cumsum(offers) - offers, offers)
        if len(devices) < count:
            offers = np.minimum(room, 2 * offers)
            continue
        ends = step * reach.seconds(devices, shares[devices] + step * nth + (step > 0))
        cut = np.partition(ends, count - 1)[count - 1]
        below = np.bincount(devices[ends < cut], minlength=len(shares))
        short = (below == offers) & (offers < room)
        if not short.any():
            break
        offers = np.where(short, np.minimum(room, 2 * offers), offers)
    ties = devices[ends == cut][: count - int(below.sum())]
    return shares + step * (below + np.bincount(ties, minlength=len(shares)))
