"""Equal times on functional models: Clarke, section 5.1; Lastovetsky & Reddy (DFPA), section 2.

A line through the origin with slope 1/T meets device i's speed function at the x_i(T) units that
it finishes in T, and the split is where ::

    x_1(T) + x_2(T) + ... + x_p(T) = n        t_i(x_i) = T for all i

T is found by Newton's method, kept within a bracket, which needs about an eighth of the
evaluations of the papers' bisection; whole units are made of it by `rounding`.
"""

from __future__ import annotations

import math
import struct
import sys

import numpy as np

from hetsched.models.curves.segments import Floats
from hetsched.partition.distribution import (
    Distribution,
    Limits,
    Models,
    checked,
    described,
    endless,
)
from hetsched.partition.rounding import rounded
from hetsched.partition.time_inverse import Reach, Units

NEWTON_STEPS = 8
"""So many steps of Newton's method first; after that every other step halves the bracket."""
MOST_STEPS = 400
"""A bracket of floats can be halved 64 times."""
LONGEST = sys.float_info.max
TINY = sys.float_info.min
SAME = 4e-16
"""Relative width of a bracket between whose ends there is no further float, or one."""


def geometric(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """The split of `load` that finishes first, if every model's time is nondecreasing.

    Parameters
    ----------
    models : sequence of SpeedFunction
        Evaluated together if they have `segments`; of others only `.time` and `.speed` of whole
        units are asked, log2(load) times or a few more.
    load : int, units
    limits : sequence of int or None, units, optional
        The most that each device takes; devices at their limit finish earlier.

    Returns
    -------
    Distribution
        Exactly optimal in whole units for nondecreasing times; ties go to the first device. A
        device whose first unit ends later than all the others' last gets none. O(p pieces) a
        step, about five steps.

    Raises
    ------
    UsageError
        Malformed; a model knows nothing yet, fails, or has a time or speed that can't be.
    DataError
        The limits leave no room for the load, or every split has an infinite time.
    """
    load, most = checked(models, load, limits)
    if load == 0:
        return described([0] * len(most), np.zeros(len(most)))
    reach = Reach(models, most)
    shares = rounded(reach, _floor(reach, load), load)
    return reach.priced(shares)


def _floor(reach: Reach, load: int) -> Units:
    """(p,) int64, units: shares of a common time at most, that sum to the load or a little less.

    Flooring loses up to a unit a device anyway, so that T needs to be known to p / 2 units only.
    """
    slack = (1 + len(reach.most)) / 2
    low, high, guess = 0.0, math.inf, reach.guess(load)
    few, many, leap = np.zeros(len(reach.most)), reach.most.astype(np.float64), 2.0
    for step in range(MOST_STEPS):
        now, rate = reach.units(guess)
        missing = load - float(now.sum())
        if missing >= 0:
            low, few = guess, now
        else:
            high, many = guess, now
        if 0 <= missing <= slack:
            break
        if low == LONGEST:
            raise endless(load)
        if high - low <= SAME * low:
            return _within(_whole(reach, few, low), _whole(reach, many, high), load)
        guess += (missing - slack / 2) / rate if rate > 0 else math.inf
        if high == math.inf and not low < guess < high:
            guess, leap = min(max(low, TINY) * leap, LONGEST), min(leap * leap, LONGEST)
        elif not low < guess < high or (step >= NEWTON_STEPS and step % 2):
            guess = _halfway(low, high)
    return _whole(reach, few, low)


def _whole(reach: Reach, parts: Floats, seconds: float) -> Units:
    """`parts` floored, and a unit less where that still takes more than `seconds`.

    Then an inverse that is off, by rounding or at a jump of the time, can do no harm.
    """
    shares = parts.astype(np.int64)
    return shares - (reach.seconds(np.arange(len(shares)), shares) > seconds)


def _within(few: Units, many: Units, load: int) -> Units:
    """`few`, raised towards `many` in order of devices while the load allows it.

    The units between the two end at the same time: where time is level, any device may have them.
    """
    room = np.maximum(many - few, 0)
    before = np.cumsum(room) - room
    shares: Units = few + np.clip(load - int(few.sum()) - before, 0, room)
    return shares


def _halfway(low: float, high: float) -> float:
    """The float with as many floats between it and `low` as between it and `high`."""
    least, most = struct.unpack("<2q", struct.pack("<2d", low, high))
    middle: float = struct.unpack("<d", struct.pack("<q", (least + most) // 2))[0]
    return middle
