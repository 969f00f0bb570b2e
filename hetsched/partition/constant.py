"""Shares in proportion to speeds: the CPM of Clarke, section 3.

d_i = n s_i / (s_1 + ... + s_p), with the speeds s_i of one run, or here of an even share.
"""

from __future__ import annotations

import numpy as np

from hetsched.errors import DataError
from hetsched.models.curves.segments import Floats
from hetsched.partition.distribution import Distribution, Limits, Models, checked, described
from hetsched.partition.time_inverse import Reach, Units


def constant(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """Split `load` in proportion to the speeds at an even share, in whole units.

    Parameters
    ----------
    models : sequence of SpeedFunction
    load : int, units
    limits : sequence of int or None, units, optional
        The most that each device takes. What a full device can't take goes to the others, in
        proportion.

    Returns
    -------
    Distribution
        Rounded by largest remainder, ties by index. O(p log p); O(p^2) at worst, with limits.

    Raises
    ------
    UsageError
        Malformed; a model knows nothing yet, fails, or has a time or speed that can't be.
    DataError
        The limits leave no room for the load, or a share would need an infinite time.
    """
    load, most = checked(models, load, limits)
    if load == 0:
        return described([0] * len(most), np.zeros(len(most)))
    reach = Reach(models, most)
    with np.errstate(under="ignore", over="ignore"):  # speeds may be as small as floats get
        parts = _proportional(reach.speeds(load), load, reach.most)
    shares = _largest_remainder(parts, load, reach.most)
    return reach.priced(shares)


def _proportional(speeds: Floats, load: int, most: Units) -> Floats:
    """Real parts in proportion to `speeds`, none above its limit."""
    parts = np.zeros(len(speeds))
    free, left = speeds > 0, load
    speeds = speeds / (speeds.max() or 1.0)
    while free.any():
        shares = np.where(free, left * (speeds / speeds[free].sum()), 0.0)
        full = free & (shares >= most)
        if not full.any():
            return np.where(free, shares, parts)
        # The limits that bind now still do when the others are handed more.
        parts[full] = most[full]
        left -= int(most[full].sum())
        free &= ~full
    if left > 0:
        raise DataError(
            f"a load of {load} units: {left} are left over by the devices that can do an even"
            " share in a finite time"
        )
    return parts


def _largest_remainder(parts: Floats, load: int, most: Units) -> Units:
    shares = np.minimum(parts, most).astype(np.int64)
    # More than one round only where the load is so large that the parts are off by units.
    while left := load - int(shares.sum()):
        step = 1 if left > 0 else -1
        movable = np.flatnonzero(shares < most if left > 0 else shares > 0)
        order = np.argsort(step * (shares - parts)[movable], kind="stable")
        shares[movable[order[: abs(left)]]] += step
    return shares
