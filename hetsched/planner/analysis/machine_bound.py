"""No split of a load over a machine can be faster than this, whatever each device's plan is.

Two bounds. The fluid one takes the load for infinitely divisible and every device at its best
possible rate, with nothing lost to fill and drain. The whole-unit one asks each device how many
whole units it could do in a time at most, by `bound` for those with a link. (Ours.)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.models import Curve, DeviceModel, SpeedFunction
from hetsched.planner.device_totals import Refined, fingerprint
from hetsched.planner.shares import Device, divide
from hetsched.plans.bounds.lower_bound import bound_of
from hetsched.plans.device_plan import Overlap
from hetsched.plans.memory_fit import largest_sub_distribution
from hetsched.plans.phase_costs import Floats, costs_of
from hetsched.plans.search.equal_chunks import Estimate, pace
from hetsched.plans.timeline import seconds_of

MOST_SIZES = 4096
"""Sizes at which a curve's best rate is looked for; all there are in smaller loads."""
ENDLESS = 1e12
"""Units of a chunk whose fixed cost is nothing any more."""
MOST_KEPT = 32
"""Bounds that are kept, the latest."""


@dataclass(frozen=True)
class Part:
    """A device of a machine, as bounds need to know it.

    Attributes
    ----------
    name : str
    model : DeviceModel
        Without a link its `total` counts, of whole shares; else its phases.
    memory : MemoryDemand or None
        None: no link.
    overlap : Overlap or None
        None: no link.

    Raises
    ------
    UsageError
        One of `memory` and `overlap` is None and the other isn't.
    """

    name: str
    model: DeviceModel
    memory: MemoryDemand | None
    overlap: Overlap | None

    def __post_init__(self) -> None:
        if (self.memory is None) != (self.overlap is None):
            raise UsageError(
                f"{self.name}: give both memory and overlap (a link) or neither (a core)"
            )


def fluid_bound(load: int, parts: Sequence[Part]) -> float:
    """Seconds that `load` units take at least if they could be cut as finely as one likes.

    Parameters
    ----------
    load : int, units
    parts : sequence of Part

    Raises
    ------
    UsageError
        The load is negative, there are no parts, or a model has a time that can't be.
    """
    _check(load, parts)
    return _asked(_fluid, load, parts) if load else 0.0


def whole_unit_bound(load: int, parts: Sequence[Part]) -> float:
    """Seconds that `load` whole units take at least.

    The least T at which the devices' largest loads with a lower bound of at most T add up to the
    load. Never above what the best split with the best plans takes, if times rise with size.

    Parameters
    ----------
    load : int, units
    parts : sequence of Part

    Raises
    ------
    DataError
        Not even one unit fits into a device's memory.
    UsageError
        As for `fluid_bound`.
    """
    _check(load, parts)
    return _asked(_whole_unit, load, parts) if load else 0.0


def _fluid(load: int, parts: Sequence[Part]) -> float:
    rates: dict[tuple[int, object], float] = {}
    for part in parts:
        key = (id(part.model), part.overlap)
        if key not in rates:
            rates[key] = _best_rate(load, part)
    return load / sum(rates[id(part.model), part.overlap] for part in parts)


def _whole_unit(load: int, parts: Sequence[Part]) -> float:
    known: dict[tuple[int, int, Overlap], _Bound] = {}
    devices: list[_Alone] = []
    for part in parts:
        if part.memory is None or part.overlap is None:
            devices.append(_Alone(part.model.total))
            continue
        key = (id(part.model), id(part.memory), part.overlap)
        if key not in known:
            known[key] = _Bound(load, part.model, part.memory, part.overlap)
        devices.append(known[key])
    shares = divide(load, [one.device() for one in devices])
    return _least(load, devices, shares)


Bound = Callable[[int, Sequence[Part]], float]


def _asked(bound: Bound, load: int, parts: Sequence[Part]) -> float:
    """`bound`, unless it is known for such parts from before."""
    keys = tuple(_key(part) for part in parts)
    if None in keys:
        return bound(load, parts)
    return _kept(_Question(bound, load, keys, parts))


@dataclass(frozen=True)
class _Question:
    """A bound, a load and parts, by value."""

    bound: Bound
    load: int
    keys: tuple[object, ...]
    parts: Sequence[Part] = field(compare=False)


@lru_cache(maxsize=MOST_KEPT)
def _kept(question: _Question) -> float:
    return question.bound(question.load, question.parts)


def _key(part: Part) -> object | None:
    """What bounds depend on; None: somebody else's curves, which may change unseen."""
    if part.memory is None:
        curve = part.model.total
        return curve.segments if isinstance(curve, Curve) and not curve.falls else None
    phases = fingerprint(part.model)
    return None if phases is None else (phases, part.memory, part.overlap)


def _least(load: int, devices: Sequence[_Alone], shares: Sequence[int]) -> float:
    """The least T at which the devices' largest loads add up to `load`, near that of `shares`."""
    while True:
        seconds = max(one.seconds(x) for one, x in zip(devices, shares, strict=True))
        most = [one.most_below(seconds, x) for one, x in zip(devices, shares, strict=True)]
        if sum(most) < load:
            return seconds
        last = [(-one.seconds(x), i) for i, (one, x) in enumerate(zip(devices, most, strict=True))]
        heapq.heapify(last)
        for _ in range(sum(most) - load):
            _, i = heapq.heappop(last)
            most[i] -= 1
            heapq.heappush(last, (-devices[i].seconds(most[i]), i))
        shares = most


class _Alone:
    """A device without a link: what its share takes is known."""

    def __init__(self, curve: SpeedFunction) -> None:
        self._curve = curve

    def device(self) -> Device:
        """As `divide` needs to know it."""
        return Device(self._curve)

    def seconds(self, share: int) -> float:
        return float(self._curve.time(share)) if share else 0.0

    def most_below(self, seconds: float, guess: int) -> int:
        """The most units that take less than `seconds`; quick if that is near `guess`."""
        low = high = guess
        step = 1
        while low > 0 and self.seconds(low) >= seconds:
            low, high, step = max(low - step, 0), low, 2 * step
        if low == high:
            high = low + 1
            while self.seconds(high) < seconds:
                low, high, step = high, high + step, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            if self.seconds(middle) < seconds:
                low = middle
            else:
                high = middle
        return low


class _Bound(_Alone):
    """A device with a link: the lower bound of its share, each worked out once."""

    def __init__(
        self, load: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
    ) -> None:
        self._load = load
        self._costs = costs_of(model, memory.most(load))
        self._room = largest_sub_distribution(load, memory)
        self._overlap = overlap
        self._estimate = Estimate(model, memory, overlap, load)
        self._known = {0: 0.0}

    def device(self) -> Device:
        return Device(None, Refined(self._estimate, self.seconds))

    def seconds(self, share: int) -> float:
        if share > self._load:
            return math.inf
        if share not in self._known:
            costs = self._costs.up_to(min(share, self._costs.largest))
            room = min(share, self._room)
            self._known[share] = bound_of(share, costs, room, self._overlap)
        return self._known[share]


def _check(load: int, parts: Sequence[Part]) -> None:
    if load < 0 or not parts:
        raise UsageError(f"load: {load} units for {len(parts)} devices; needs at least one")


def _best_rate(load: int, part: Part) -> float:
    """Units a second at most, with chunks as large as one likes."""
    sizes = np.unique(np.geomspace(1, load, MOST_SIZES).round()) if load > MOST_SIZES else None
    units = np.append(np.arange(1, load + 1) if sizes is None else sizes, ENDLESS)
    if part.overlap is None:
        return _inverse(_pace(part.model.total, units))
    each = [_pace(curve, units) for curve in (part.model.h2d, part.model.d2h)]
    copy_in, copy_out = (np.array(one) for one in each)
    compute = _pace(part.model.compute, units)
    if part.overlap is Overlap.NONE:
        return _inverse(compute + sum(each))
    duplex = part.model.duplex if part.overlap is Overlap.FULL else (0.5, 0.5)
    return _inverse(max(compute, float(pace(copy_in, copy_out, duplex))))


def _inverse(seconds: float) -> float:
    return 1 / seconds if seconds > 0 else math.inf


def _pace(curve: SpeedFunction | None, units: Floats) -> float:
    """Seconds a unit at least; 0 for a phase that isn't there."""
    return 0.0 if curve is None else float((seconds_of(curve, units) / units).min())
