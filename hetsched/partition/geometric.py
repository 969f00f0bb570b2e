"""Equal times on functional models: Clarke, section 5.1; Lastovetsky & Reddy (DFPA), section 2.

A line through the origin with slope 1/T intersects device i's speed function at the x_i(T) units
that it finishes in T, and the optimum is where ::

    x_1(T) + x_2(T) + ... + x_p(T) = n        t_i(x_i) = T for all i

T is computed by Newton's method within a bracket, which needs about an eighth of the evaluations
of the papers' bisection; `rounding` turns the result into whole units.
"""

from __future__ import annotations

import math
import struct
import sys
from dataclasses import replace

import numpy as np

from hetsched.errors import DataError
from hetsched.models.curves.segments import Floats
from hetsched.partition.distribution import (
    Distribution,
    Limits,
    Models,
    check_request,
    distribution_of,
    infinite_time_error,
)
from hetsched.partition.optimal import MAX_TIMES, optimal
from hetsched.partition.rounding import round_to_load
from hetsched.partition.time_inverse import TimeInverse, Units

NEWTON_STEPS = 8
"""Pure Newton steps at first; after that every other step halves the bracket."""
MAX_STEPS = 400
"""Steps; a bracket of floats can be halved at most 64 times."""
MAX_SECONDS = sys.float_info.max
MIN_SECONDS = sys.float_info.min
MIN_BRACKET = 4e-16
"""Relative width of a bracket that contains at most one further float."""


def geometric(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """Split `load` for the shortest makespan, if every model's time is nondecreasing.

    Parameters
    ----------
    models : sequence of SpeedFunction
        `Curve`s are evaluated together; others only by `.time` and `.speed` of whole units, about
        log2(load) times.
    load : int, units
    limits : sequence of int or None, units, optional
        The maximum for each device; devices at their limit finish earlier.

    Returns
    -------
    Distribution
        Exactly optimal in whole units for nondecreasing times; ties go to the first device. A
        device whose first unit ends later than all other devices gets none. O(p pieces) per
        step, about five steps. If only sizes with infinite times are in the way, as of a model
        that lacks some, the result of `optimal`, with a `reason`.

    Raises
    ------
    UsageError
        A malformed argument; a model is unmeasured, fails, or returns an invalid time or speed.
    DataError
        The limits leave no room for the load, or every split has an infinite time.
    """
    load, max_shares = check_request(models, load, limits)
    if load == 0:
        return distribution_of([0] * len(max_shares), np.zeros(len(max_shares)))
    inverse = TimeInverse(models, max_shares)
    try:
        shares = round_to_load(inverse, _equal_time_floor(inverse, load), load)
        return inverse.distribution(shares)
    except DataError:
        if not inverse.has_opaque_models or sum(max_shares) + len(max_shares) > MAX_TIMES:
            raise
        split = optimal(models, load, limits)
        return replace(
            split, reason="geometric: sizes with infinite times; optimal's split instead"
        )


def _equal_time_floor(inverse: TimeInverse, load: int) -> Units:
    """Return (p,) int64, units: shares within a common time that sum to at most the load.

    Flooring loses up to one unit per device anyway, so T is needed only to within p / 2 units.
    """
    slack = (1 + len(inverse.max_shares)) / 2
    low, high, guess = 0.0, math.inf, inverse.guess(load)
    parts_low = np.zeros(len(inverse.max_shares))
    parts_high, growth = inverse.max_shares.astype(np.float64), 2.0
    for step in range(MAX_STEPS):
        parts, rate = inverse.units(guess)
        missing = load - float(parts.sum())
        if missing >= 0:
            low, parts_low = guess, parts
        else:
            high, parts_high = guess, parts
        if 0 <= missing <= slack:
            break
        if low == MAX_SECONDS:
            raise infinite_time_error(load)
        if high - low <= MIN_BRACKET * low:
            shares_low = _floor(inverse, parts_low, low)
            shares_high = _floor(inverse, parts_high, high)
            return _fill(shares_low, shares_high, load)
        guess += (missing - slack / 2) / rate if rate > 0 else math.inf
        if high == math.inf and not low < guess < high:
            guess = min(max(low, MIN_SECONDS) * growth, MAX_SECONDS)
            growth = min(growth * growth, MAX_SECONDS)
        elif not low < guess < high or (step >= NEWTON_STEPS and step % 2):
            guess = _middle_float(low, high)
    return _floor(inverse, parts_low, low)


def _floor(inverse: TimeInverse, parts: Floats, seconds: float) -> Units:
    """Floor `parts`, and subtract a unit where the result takes more than `seconds`.

    This corrects inverses that are inexact because of rounding or a jump of the time.
    """
    shares = parts.astype(np.int64)
    return shares - (inverse.seconds(np.arange(len(shares)), shares) > seconds)


def _fill(low: Units, high: Units, load: int) -> Units:
    """Raise `low` towards `high` in order of devices until the load is reached.

    The units between the two end at the same time: where times are level, any device may take
    them.
    """
    room = np.maximum(high - low, 0)
    before = np.cumsum(room) - room
    shares: Units = low + np.clip(load - int(low.sum()) - before, 0, room)
    return shares


def _middle_float(low: float, high: float) -> float:
    """Return the float halfway between `low` and `high` in the order of all floats."""
    first, last = struct.unpack("<2q", struct.pack("<2d", low, high))
    middle: float = struct.unpack("<d", struct.pack("<q", (first + last) // 2))[0]
    return middle
