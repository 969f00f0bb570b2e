"""No split of a load over a machine can be faster than this, whatever each device's plan is.

Two bounds. The fluid one takes the load for infinitely divisible and every device at its best
possible rate, with nothing lost to fill and drain. The whole-unit one asks each device how many
whole units it could do in a time at most, by `bound` for those with a link. (Ours.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.partition import geometric
from hetsched.schedule.bound import bound_of
from hetsched.schedule.costs import Floats, costs_of
from hetsched.schedule.equal import pace
from hetsched.schedule.plan import Overlap
from hetsched.schedule.room import largest_sub_distribution
from hetsched.schedule.timeline import seconds_of

MOST_SIZES = 4096
"""Sizes at which a curve's best rate is looked for; all there are in smaller loads."""
ENDLESS = 1e12
"""Units of a chunk whose fixed cost is nothing any more."""


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
    if load == 0:
        return 0.0
    rates: dict[tuple[int, object], float] = {}
    for part in parts:
        key = (id(part.model), part.overlap)
        if key not in rates:
            rates[key] = _best_rate(load, part)
    total = sum(rates[id(part.model), part.overlap] for part in parts)
    return load / total


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
    if load == 0:
        return 0.0
    known: dict[tuple[int, int, Overlap], _Bound] = {}
    curves: list[SpeedFunction] = []
    for part in parts:
        if part.memory is None or part.overlap is None:
            curves.append(part.model.total)
            continue
        key = (id(part.model), id(part.memory), part.overlap)
        if key not in known:
            known[key] = _Bound(load, part.model, part.memory, part.overlap)
        curves.append(known[key])
    return geometric(curves, load).makespan


class _Bound:
    """The lower bound of one device as a function of its share, each worked out once."""

    def __init__(
        self, load: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
    ) -> None:
        self._costs = costs_of(model, memory.most(load))
        self._room = largest_sub_distribution(load, memory)
        self._overlap = overlap
        self._known: dict[int, float] = {}

    def time(self, x: Any, /) -> Any:
        share = int(x)
        if share not in self._known:
            costs = self._costs.up_to(min(share, self._costs.largest))
            room = min(share, self._room)
            self._known[share] = bound_of(share, costs, room, self._overlap)
        return self._known[share]

    def speed(self, x: Any, /) -> Any:
        return x / self.time(x)


def _check(load: int, parts: Sequence[Part]) -> None:
    if load < 0 or not parts:
        raise UsageError(f"load: {load} units for {len(parts)} devices; needs at least one")


def _best_rate(load: int, part: Part) -> float:
    """Units a second at most, with chunks as large as one likes."""
    sizes = np.unique(np.geomspace(1, load, MOST_SIZES).round()) if load > MOST_SIZES else None
    units = np.append(np.arange(1, load + 1) if sizes is None else sizes, ENDLESS)
    if part.overlap is None:
        return _inverse(_least(part.model.total, units))
    each = [_least(curve, units) for curve in (part.model.h2d, part.model.d2h)]
    copy_in, copy_out = (np.array(one) for one in each)
    compute = _least(part.model.compute, units)
    if part.overlap is Overlap.NONE:
        return _inverse(compute + sum(each))
    duplex = part.model.duplex if part.overlap is Overlap.FULL else (0.5, 0.5)
    return _inverse(max(compute, float(pace(copy_in, copy_out, duplex))))


def _inverse(seconds: float) -> float:
    return 1 / seconds if seconds > 0 else math.inf


def _least(curve: SpeedFunction | None, units: Floats) -> float:
    """Seconds a unit at least; 0 for a phase that isn't there."""
    return 0.0 if curve is None else float((seconds_of(curve, units) / units).min())
