"""Shares in proportion to speeds: the CPM of Clarke, section 3.

d_i = n s_i / (s_1 + ... + s_p), with the speeds s_i of one run; here at an even share.
"""

from __future__ import annotations

import numpy as np

from hetsched.errors import DataError
from hetsched.models.curves.segments import Floats
from hetsched.partition.distribution import (
    Distribution,
    Limits,
    Models,
    check_request,
    distribution_of,
)
from hetsched.partition.time_inverse import TimeInverse, Units


def constant(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """Split `load` in proportion to the speeds at an even share, in whole units.

    Parameters
    ----------
    models : sequence of SpeedFunction
    load : int, units
    limits : sequence of int or None, units, optional
        The maximum for each device. The excess of a full device goes to the others, in proportion.

    Returns
    -------
    Distribution
        Rounded by largest remainder, ties by index. O(p log p); O(p^2) at worst, with limits.

    Raises
    ------
    UsageError
        A malformed argument; a model is unmeasured, fails, or returns an invalid time or speed.
    DataError
        The limits leave no room for the load, or a share would need an infinite time.
    """
    load, max_shares = check_request(models, load, limits)
    if load == 0:
        return distribution_of([0] * len(max_shares), np.zeros(len(max_shares)))
    inverse = TimeInverse(models, max_shares)
    with np.errstate(under="ignore", over="ignore"):  # speeds may be the smallest floats
        parts = _proportional(inverse.even_speeds(load), load, inverse.max_shares)
    shares = _largest_remainder(parts, load, inverse.max_shares)
    return inverse.distribution(shares)


def _proportional(speeds: Floats, load: int, max_shares: Units) -> Floats:
    """Return real shares in proportion to `speeds`, none above its limit."""
    parts = np.zeros(len(speeds))
    free, remaining = speeds > 0, load
    speeds = speeds / (speeds.max() or 1.0)
    while free.any():
        shares = np.where(free, remaining * (speeds / speeds[free].sum()), 0.0)
        full = free & (shares >= max_shares)
        if not full.any():
            return np.where(free, shares, parts)
        # Limits that bind now still bind when the other devices get more.
        parts[full] = max_shares[full]
        remaining -= int(max_shares[full].sum())
        free &= ~full
    if remaining > 0:
        raise DataError(
            f"a load of {load} units: {remaining} exceed the limits of the devices with a finite"
            " time for an even share"
        )
    return parts


def _largest_remainder(parts: Floats, load: int, max_shares: Units) -> Units:
    shares = np.minimum(parts, max_shares).astype(np.int64)
    # More than one round only if the load is so large that the parts are wrong by units.
    while missing := load - int(shares.sum()):
        step = 1 if missing > 0 else -1
        movable = np.flatnonzero(shares < max_shares if missing > 0 else shares > 0)
        order = np.argsort(step * (shares - parts)[movable], kind="stable")
        shares[movable[order[: abs(missing)]]] += step
    return shares
