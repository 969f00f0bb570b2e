"""Rounding of real shares to whole units that keeps the optimum.

Greedy: each unit goes to the device that finishes it first. For nondecreasing times this gives the
shortest makespan (Ibaraki & Katoh 1988, Resource Allocation Problems, chapter 4), and the assigned
units are those that end earliest, in any order, so one partial sort finds them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched.errors import UsageError
from hetsched.partition.distribution import Limits, Models, check_request
from hetsched.partition.time_inverse import TimeInverse, Units

MAX_MOVED_UNITS = 1 << 22
"""Units that rounding may move; their times are all compared at once."""
FIRST_OFFER = 2
"""Initial number of candidate units per device; doubled each time all of them are taken."""


def round_greedy(
    models: Models, parts: Sequence[float], load: int, limits: Limits | None = None
) -> list[int]:
    """Floor `parts`, then assign the remaining units, each to the device that finishes it first.

    Exactly optimal for nondecreasing times if all parts are within a common time and their sum is
    at most the load, since greedy assignment from zero would pass through these shares. If the sum
    is larger, units are removed, each from the device that ends last.

    Parameters
    ----------
    models : sequence of SpeedFunction
    parts : sequence of float, units
        One per device.
    load : int, units
    limits : sequence of int or None, units, optional
        The maximum for each device.

    Returns
    -------
    list of int, units
        Summing to the load; ties go to the first device. O((p + r) log(pieces)) for r units
        remaining after flooring.

    Raises
    ------
    UsageError, DataError
        A malformed argument; the limits leave no room for the load.
    """
    load, max_shares = check_request(models, load, limits)
    try:
        real = np.asarray(parts, dtype=np.float64)
    except (TypeError, ValueError):
        real = np.empty(0)
    if real.shape != (len(max_shares),) or not (real >= 0).all():
        text = repr(parts)[:60]
        raise UsageError(f"parts: {text} must be {len(max_shares)} numbers of at least 0")
    floors = np.minimum(real, max_shares).astype(np.int64)
    missing = load - sum(floors.tolist())
    if abs(missing) > MAX_MOVED_UNITS:
        raise UsageError(
            f"parts: the sum is {missing} units below the load, at most {MAX_MOVED_UNITS}"
        )
    shares: list[int] = round_to_load(TimeInverse(models, max_shares), floors, load).tolist()
    return shares


def round_to_load(inverse: TimeInverse, shares: Units, load: int) -> Units:
    """Add units to (p,) int64 `shares`, or remove some, so that they sum to `load`.

    The limits of `inverse` must leave room for the load.
    """
    missing = load - sum(shares.tolist())
    if missing > 0:
        return _change(inverse, shares, missing, inverse.max_shares - shares, 1)
    if missing < 0:
        return _change(inverse, shares, -missing, shares, -1)
    return shares


def _change(inverse: TimeInverse, shares: Units, count: int, room: Units, step: int) -> Units:
    """Add `count` units that end first (step 1), or remove those that end last (step -1).

    `room`: maximum change per device. The next few units of all devices are compared at once. The
    cut is final unless it takes all candidate units of a device that has more.
    """
    room = np.minimum(room, count)
    offers = np.minimum(room, FIRST_OFFER)
    while True:
        devices = np.repeat(np.arange(len(shares)), offers)
        nth = np.arange(len(devices)) - np.repeat(np.cumsum(offers) - offers, offers)
        if len(devices) < count:
            offers = np.minimum(room, 2 * offers)
            continue
        ends = step * inverse.seconds(devices, shares[devices] + step * nth + (step > 0))
        cut = np.partition(ends, count - 1)[count - 1]
        below = np.bincount(devices[ends < cut], minlength=len(shares))
        short = (below == offers) & (offers < room)
        if not short.any():
            break
        offers = np.where(short, np.minimum(room, 2 * offers), offers)
    ties = devices[ends == cut][: count - int(below.sum())]
    return shares + step * (below + np.bincount(ties, minlength=len(shares)))
