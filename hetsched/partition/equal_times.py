"""Partitioners for times that rise with size: shares with which all devices finish together.

`constant` splits in proportion to speeds (CPM: Clarke 3). `geometric` finds the common time T of

    x_1(T) + x_2(T) + ... + x_p(T) = n        t_i(x_i) = T for all i

where a line through the origin with slope 1/T intersects the speed functions (Clarke 5.1; DFPA 2).
It uses Newton's method within a bracket, which needs about an eighth of the evaluations of the
papers' bisection. `round_greedy` turns real shares into whole units and keeps the optimum.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hetsched.errors import DataError, UsageError
from hetsched.models import Curve, SpeedFunction
from hetsched.models.curves import Floats, Indices, Numbers, PackedSegments
from hetsched.partition.discrete import MAX_TIMES, optimal
from hetsched.partition.distribution import (
    Distribution,
    Limits,
    Models,
    check_request,
    distribution_of,
    infinite_time_error,
    speed_functions,
    time_of,
)

Units = NDArray[np.int64]
NEWTON_STEPS = 8
"""Pure Newton steps at first; after that every other step halves the bracket."""
MAX_STEPS = 400
"""Steps; a bracket of floats can be halved at most 64 times."""
MAX_SECONDS = sys.float_info.max
MIN_SECONDS = sys.float_info.min
MAX_MOVED_UNITS = 1 << 22
"""Units that rounding may move; their times are all compared at once."""


class TimeInverse:
    """x_i(T), the units that each device finishes in time T within its limit, and t_i(x).

    Models with a closed form are packed into one table, equal ones once. Any other is evaluated
    at whole units, each once.
    """

    def __init__(self, models: Models, max_shares: Sequence[int]) -> None:
        self._models = speed_functions(models)
        self.max_shares = np.array(max_shares, dtype=np.int64)
        is_curve = {kind: issubclass(kind, Curve) for kind in set(map(type, self._models))}
        curves = {id(model): model for model in self._models if is_curve[type(model)]}
        numbers = {key: number for number, key in enumerate(curves)}
        self._curve: Indices = np.array(
            [numbers.get(id(model), -1) for model in self._models], dtype=np.intp
        )
        self._packed = PackedSegments([curve.segments for curve in curves.values()])
        falls = np.array([curve.may_fall for curve in curves.values()], dtype=bool)
        self._closed = np.flatnonzero(self._curve >= 0)
        self._falling = self._closed[falls[self._curve[self._closed]]].tolist()
        # Times of models without a closed form may be infinite, or fall.
        self.opaque = {
            i: _OpaqueModel(i, self._models[i]) for i in np.flatnonzero(self._curve < 0).tolist()
        }

    def even_speeds(self, load: int) -> Floats:
        """Return (p,) float64, units/s at an even share or the limit; 0 if the limit is 0."""
        even = np.minimum(max(load // len(self.max_shares), 1), self.max_shares)
        usable = np.flatnonzero(even)
        speeds = np.zeros(len(even))
        with np.errstate(over="ignore", divide="ignore"):
            speeds[usable] = even[usable] / self.seconds(usable, even[usable])
        return speeds

    def guess(self, load: int) -> float:
        with np.errstate(over="ignore", divide="ignore"):
            seconds = load / self.even_speeds(load).sum()
        return float(np.clip(seconds, MIN_SECONDS, MAX_SECONDS))

    def units(self, seconds: float) -> tuple[Floats, float]:
        """Return (p,) float64, units done in `seconds` per device; their total rate, units/s."""
        parts, rates = np.zeros(len(self.max_shares)), np.zeros(len(self.max_shares))
        units, slopes = self._packed.inverse(seconds)
        curves = self._curve[self._closed]
        parts[self._closed], rates[self._closed] = units[curves], slopes[curves]
        for i, model in self.opaque.items():
            parts[i] = model.units(seconds, int(self.max_shares[i]))
            rates[i] = parts[i] / seconds if seconds > 0 else 0.0
        full = parts >= self.max_shares
        return np.where(full, self.max_shares, parts), float(rates[~full].sum())

    def seconds(self, devices: Indices, units: Numbers) -> Floats:
        """Return (k,) float64: seconds of device `devices[j]` for a whole number `units[j]`.

        Of times that fall with size, the nearest nondecreasing ones.
        """
        curves = self._curve[devices]
        if not self.opaque:
            return self._packed.time(curves, units)
        times, is_closed = np.zeros(len(devices)), curves >= 0
        times[is_closed] = self._packed.time(curves[is_closed], units[is_closed])
        for j in np.flatnonzero(~is_closed).tolist():
            times[j] = self.opaque[int(devices[j])].seconds(int(units[j]))
        return times

    def distribution(self, shares: Units) -> Distribution:
        times = self.seconds(np.arange(len(shares)), shares)
        for i in self._falling:
            times[i] = time_of(i, self._models[i], int(shares[i])) if shares[i] else 0.0
        return distribution_of(shares.tolist(), times)


class _OpaqueModel:
    """A model without a closed form."""

    def __init__(self, index: int, model: SpeedFunction) -> None:
        self._index, self._model = index, model
        self._seconds = {0: 0.0}

    def seconds(self, units: int) -> float:
        if units not in self._seconds:
            self._seconds[units] = time_of(self._index, self._model, units)
        return self._seconds[units]

    def units(self, seconds: float, max_share: int) -> int:
        """Return the largest x <= `max_share` with time(x) <= `seconds`, if times rise."""
        low, high = 0, max_share + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.seconds(middle) <= seconds:
                low = middle
            else:
                high = middle
        return low


# ---- in proportion to speeds


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
        A malformed argument; a model is unmeasured, fails, or returns an invalid time.
    DataError
        The limits leave no room for the load, or a share would need an infinite time.
    """
    load, max_shares = check_request(models, load, limits)
    if load == 0:
        return distribution_of([0] * len(max_shares), np.zeros(len(max_shares)))
    inverse = TimeInverse(models, max_shares)
    with np.errstate(under="ignore", over="ignore"):  # speeds may be the smallest floats
        parts = _proportional(inverse.even_speeds(load), load, inverse.max_shares)
    return inverse.distribution(_largest_remainder(parts, load, inverse.max_shares))


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


# ---- equal times


def geometric(models: Models, load: int, limits: Limits | None = None) -> Distribution:
    """Split `load` for the shortest makespan, if every model's time is nondecreasing.

    Parameters
    ----------
    models : sequence of SpeedFunction
        `Curve`s are evaluated together; others only by `.time` of whole units, about log2(load)
        times.
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
        A malformed argument; a model is unmeasured, fails, or returns an invalid time.
    DataError
        The limits leave no room for the load, or every split has an infinite time.
    """
    load, max_shares = check_request(models, load, limits)
    if load == 0:
        return distribution_of([0] * len(max_shares), np.zeros(len(max_shares)))
    inverse = TimeInverse(models, max_shares)
    try:
        shares = _round(inverse, _equal_time_floor(inverse, load), load)
        return inverse.distribution(shares)
    except DataError:
        if not inverse.opaque or sum(max_shares) + len(max_shares) > MAX_TIMES:
            raise
        reason = "geometric: sizes with infinite times; optimal's split instead"
        return replace(optimal(models, load, limits), reason=reason)


def _equal_time_floor(inverse: TimeInverse, load: int) -> Units:
    """Return (p,) int64: shares within a common time that sum to at most the load.

    Flooring loses up to one unit per device, so T is needed only to within p / 2 units.
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
        if high - low <= 4e-16 * low:  # it contains at most one further float
            return _filled(
                _floor(inverse, parts_low, low), _floor(inverse, parts_high, high), load
            )
        guess += (missing - slack / 2) / rate if rate > 0 else math.inf
        if high == math.inf and not low < guess < high:
            guess = min(max(low, MIN_SECONDS) * growth, MAX_SECONDS)
            growth = min(growth * growth, MAX_SECONDS)
        elif not low < guess < high or (step >= NEWTON_STEPS and step % 2):
            guess = _middle_float(low, high)
    return _floor(inverse, parts_low, low)


def _floor(inverse: TimeInverse, parts: Floats, seconds: float) -> Units:
    """Floor `parts`; a unit less where rounding or a jump of the time makes it too long."""
    shares = parts.astype(np.int64)
    return shares - (inverse.seconds(np.arange(len(shares)), shares) > seconds)


def _filled(low: Units, high: Units, load: int) -> Units:
    """Raise `low` towards `high`, device by device, up to the load: all end together."""
    room = np.maximum(high - low, 0)
    before = np.cumsum(room) - room
    shares: Units = low + np.clip(load - int(low.sum()) - before, 0, room)
    return shares


def _middle_float(low: float, high: float) -> float:
    """Return the float halfway between `low` and `high` in the order of all floats."""
    first, last = struct.unpack("<2q", struct.pack("<2d", low, high))
    middle: float = struct.unpack("<d", struct.pack("<q", (first + last) // 2))[0]
    return middle


# ---- whole units


def round_greedy(
    models: Models, parts: Sequence[float], load: int, limits: Limits | None = None
) -> list[int]:
    """Floor `parts`, then assign the remaining units, each to the device that finishes it first.

    Exactly optimal for nondecreasing times if all parts are within a common time and their sum is
    at most the load, since greedy assignment from zero would pass through these shares (Ibaraki &
    Katoh 1988, Resource Allocation Problems, chapter 4). If the sum is larger, units are removed,
    each from the device that ends last.

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
    shares: list[int] = _round(TimeInverse(models, max_shares), floors, load).tolist()
    return shares


def _round(inverse: TimeInverse, shares: Units, load: int) -> Units:
    """Add units to (p,) int64 `shares`, or remove some, so that they sum to `load`."""
    missing = load - sum(shares.tolist())
    if missing > 0:
        return _changed(inverse, shares, missing, inverse.max_shares - shares, 1)
    if missing < 0:
        return _changed(inverse, shares, -missing, shares, -1)
    return shares


def _changed(inverse: TimeInverse, shares: Units, count: int, room: Units, step: int) -> Units:
    """Add `count` units that end first (step 1), or remove those that end last (step -1).

    `room`: maximum change per device. The next few units of all devices are compared at once, in
    one partial sort. The cut is final unless it takes all candidates of a device that has more.
    """
    room = np.minimum(room, count)
    offers = np.minimum(room, 2)
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
