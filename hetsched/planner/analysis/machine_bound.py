"""Lower bounds on the time of any split of a load over a machine, with any plans.

The fluid bound assumes an infinitely divisible load and every device at its best possible rate,
without time to fill and drain pipelines. The whole-unit bound uses the largest number of whole
units that each device could finish in a given time, by `lower_bound` for those with a link.
(Ours.)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.models.curves.curve import planner_curve
from hetsched.planner.analysis.device_bounds import CoreBound, LinkedBound
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.plan_table import phase_fingerprint
from hetsched.planner.shares import split_load
from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Floats, seconds_of
from hetsched.plans.share_estimate import link_seconds

MAX_SIZES = 4096
"""Number of sizes at which a curve's best rate is searched; all sizes in smaller loads."""
MAX_EXACT_LOAD = 1 << 16
"""Units up to which the whole-unit bound is exact."""
MAX_SLACK = 1e-4
"""Relative error of the whole-unit bound of larger loads."""
ENDLESS_UNITS = 1e12
"""Units of a chunk so large that its fixed cost vanishes."""


@dataclass(frozen=True)
class MachineDevice:
    """A device of a machine, with what bounds depend on.

    Attributes
    ----------
    name : str
    model : DeviceModel
        Without a link its `total` is used, for whole shares; otherwise its phases.
    memory : MemoryDemand or None
        None: no link.
    overlap : Overlap or None
        None: no link.
    correction : float
        By which all times are multiplied.

    Raises
    ------
    UsageError
        Only one of `memory` and `overlap` is None.
    """

    name: str
    model: DeviceModel
    memory: MemoryDemand | None
    overlap: Overlap | None
    correction: float = 1.0

    def __post_init__(self) -> None:
        if (self.memory is None) != (self.overlap is None):
            raise UsageError(
                f"{self.name}: give both memory and overlap (a link) or neither (a core)"
            )


def fluid_bound(
    load: int, devices: Sequence[MachineDevice], *, cache: PlanCache | None = None
) -> float:
    """Return the minimum seconds of `load` units if units were divisible.

    Parameters
    ----------
    load : int, units
    devices : sequence of MachineDevice
    cache : PlanCache, optional

    Raises
    ------
    UsageError
        The load is negative, there are no devices, or a model has a time that isn't positive.
    """
    _check(load, devices)
    if load == 0:
        return 0.0
    cache = PlanCache() if cache is None else cache
    key = _key("fluid", load, devices)
    return cache.bounds.get_or_compute(key, lambda: _fluid(load, devices))


def whole_unit_bound(
    load: int, devices: Sequence[MachineDevice], *, cache: PlanCache | None = None
) -> float:
    """Return the minimum seconds of `load` whole units.

    This is the smallest T for which the devices' largest loads with a lower bound of at most T add
    up to the load. If times rise with size, it never exceeds the best split with the best plans.

    Parameters
    ----------
    load : int, units
    devices : sequence of MachineDevice
    cache : PlanCache, optional

    Raises
    ------
    DataError
        Not even one unit fits into a device's memory.
    UsageError
        As for `fluid_bound`.
    """
    _check(load, devices)
    if load == 0:
        return 0.0
    owner = PlanCache() if cache is None else cache
    key = _key("whole-unit", load, devices)
    return owner.bounds.get_or_compute(key, lambda: _whole_unit(load, devices, owner))


def _check(load: int, devices: Sequence[MachineDevice]) -> None:
    if load < 0 or not devices:
        raise UsageError(f"load: {load} units for {len(devices)} devices; needs at least one")


def _key(kind: str, load: int, devices: Sequence[MachineDevice]) -> Hashable | None:
    """Return everything that a bound depends on, by value; None: a curve can't be compared."""
    fingerprints = tuple(_fingerprint(device) for device in devices)
    return None if None in fingerprints else (kind, load, fingerprints)


def _fingerprint(device: MachineDevice) -> Hashable | None:
    if device.memory is None:
        total = planner_curve(device.model.total).fingerprint()
        return None if total is None else (total, device.correction)
    phases = phase_fingerprint(device.model)
    return None if phases is None else (phases, device.memory, device.overlap, device.correction)


def _fluid(load: int, devices: Sequence[MachineDevice]) -> float:
    rates: dict[tuple[int, object], float] = {}
    for device in devices:
        key = (id(device.model), device.overlap)
        if key not in rates:
            rates[key] = _best_rate(load, device)
    return load / sum(
        rates[id(device.model), device.overlap] / device.correction for device in devices
    )


def _best_rate(load: int, device: MachineDevice) -> float:
    """Return the maximum units per second, with chunks of any size."""
    sizes = np.unique(np.geomspace(1, load, MAX_SIZES).round()) if load > MAX_SIZES else None
    units = np.append(np.arange(1, load + 1) if sizes is None else sizes, ENDLESS_UNITS)
    model = device.model
    if device.overlap is None:
        return _inverse(_best_pace(model.total, units))
    paces = [_best_pace(curve, units) for curve in (model.h2d, model.d2h)]
    copy_in, copy_out = (np.array(pace) for pace in paces)
    compute = _best_pace(model.compute, units)
    if device.overlap is Overlap.NONE:
        return _inverse(compute + sum(paces))
    duplex = model.duplex if device.overlap is Overlap.FULL else (0.5, 0.5)
    return _inverse(max(compute, float(link_seconds(copy_in, copy_out, duplex))))


def _inverse(seconds: float) -> float:
    return 1 / seconds if seconds > 0 else math.inf


def _best_pace(curve: SpeedFunction | None, units: Floats) -> float:
    """Return the minimum seconds per unit; 0 for a phase that doesn't exist."""
    return 0.0 if curve is None else float((seconds_of(curve, units) / units).min())


def _whole_unit(load: int, devices: Sequence[MachineDevice], cache: PlanCache) -> float:
    linked: dict[tuple[int, int, Overlap, float], LinkedBound] = {}
    bounds: list[CoreBound] = []
    for device in devices:
        if device.memory is None or device.overlap is None:
            bounds.append(CoreBound(device.model.total, device.correction))
            continue
        key = (id(device.model), id(device.memory), device.overlap, device.correction)
        if key not in linked:
            linked[key] = LinkedBound(
                load, device.model, device.memory, device.overlap, device.correction
            )
        bounds.append(linked[key])
    shares = split_load(load, [bound.total() for bound in bounds], cache)
    return _least_time(load, bounds, shares)


def _least_time(load: int, bounds: Sequence[CoreBound], shares: Sequence[int]) -> float:
    """Return the smallest T at which the devices' largest loads add up to `load`.

    The search starts from the times of `shares`. Loads of very many units get a slightly smaller
    T, for which the devices' loads don't suffice.
    """
    if load > MAX_EXACT_LOAD:
        return _nearly_least_time(load, bounds, shares)
    while True:
        seconds = max(bound.seconds(x) for bound, x in zip(bounds, shares, strict=True))
        units = _units_below(bounds, seconds, shares)
        if sum(units) < load:
            return seconds
        latest = [(-bounds[i].seconds(x), i) for i, x in enumerate(units)]
        heapq.heapify(latest)
        for _ in range(sum(units) - load):
            _, i = heapq.heappop(latest)
            units[i] -= 1
            heapq.heappush(latest, (-bounds[i].seconds(units[i]), i))
        shares = units


def _nearly_least_time(load: int, bounds: Sequence[CoreBound], shares: Sequence[int]) -> float:
    """Return a time in which the devices can't finish `load`; less than 0.01 % below the least."""
    slack = MAX_SLACK / 2
    precision = max(1, int(slack / 8 * load / len(bounds)))
    longest = max(bound.seconds(x) for bound, x in zip(bounds, shares, strict=True))
    high, low, units = longest, longest * (1 - slack), shares
    while sum(units := _units_below(bounds, low, units, precision)) >= load:
        slack *= 4
        high, low = low, longest * max(1 - slack, 0.0)
    while high - low > MAX_SLACK * high:
        middle = (low + high) / 2
        units = _units_below(bounds, middle, units, precision)
        low, high = (low, middle) if sum(units) >= load else (middle, high)
    return low


def _units_below(
    bounds: Sequence[CoreBound], seconds: float, guesses: Sequence[int], precision: int = 1
) -> list[int]:
    """Return the most units of each device that take less than `seconds`, or a few more."""
    pairs = zip(bounds, guesses, strict=True)
    return [bound.units_below(seconds, x, precision) for bound, x in pairs]
