"""The result of a partition, and the checks that every partitioner starts with."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.errors import DataError, UsageError
from hetsched.models import SpeedFunction
from hetsched.models.curves.segments import Floats
from hetsched.partition.model_queries import speed_functions, time_of, wrong_time

Models = Sequence[SpeedFunction]
Limits = Sequence[int | None]
"""The most units that each device takes; None: any number."""
MOST_UNITS = 2**53
"""The largest load: up to here every whole number is a float."""


@dataclass(frozen=True)
class Distribution:
    """All shares, and what the models say of them.

    Attributes
    ----------
    shares : tuple of int, units
        One a device, summing to the load.
    makespan : float, seconds
        The longest time.
    spread : float
        (max - min) / min of the times of the devices that have a share; 0.0 for one device.
    reason : str
        Why another method than the one asked for was used; empty if it wasn't.
    """

    shares: tuple[int, ...]
    makespan: float
    spread: float
    reason: str = ""


def priced(models: Models, shares: Sequence[int]) -> Distribution:
    """The Distribution of `shares` under `models`.

    Raises
    ------
    UsageError, DataError
        As `described`; a model that isn't one, or whose time isn't positive.
    """
    curves = speed_functions(models)
    times = [
        time_of(i, curve, share) if share else 0.0
        for i, (curve, share) in enumerate(zip(curves, shares, strict=True))
    ]
    return described(shares, np.array(times))


def described(shares: Sequence[int], times: Floats) -> Distribution:
    """The Distribution of `shares` that take (p,) float64 `times` seconds.

    Raises
    ------
    UsageError
        A device that has a share would take no time, or one that is no number.
    DataError
        A device that has a share would need an infinite time.
    """
    some = np.flatnonzero(shares)
    if not len(some):
        return Distribution(tuple(shares), 0.0, 0.0)
    busy = times[some]
    least, most = float(busy.min()), float(busy.max())
    if not least > 0:
        first = int(some[np.flatnonzero(~(busy > 0))[0]])
        raise wrong_time(first, shares[first], float(times[first]))
    if most == math.inf:
        raise endless(sum(shares))
    return Distribution(tuple(shares), most, (most - least) / least)


def endless(load: int) -> DataError:
    return DataError(f"no split of {load} units has a finite time by the models")


def checked(models: Models, load: int, limits: Limits | None) -> tuple[int, list[int]]:
    """`load` as an int, and the most units each device can have (at most the load).

    Raises
    ------
    UsageError
        No devices; a load or limit that is negative or no whole number, a load above
        `MOST_UNITS`; not one limit a device.
    DataError
        The limits leave no room for the load.
    """
    devices = _length("models", models)
    if not devices:
        raise UsageError("a partition needs at least one device")
    load = whole_units("load", load)
    if load > MOST_UNITS:
        raise UsageError(f"load: {load} units, at most {MOST_UNITS}; use larger units")
    if limits is None:
        return load, [load] * devices
    if _length("limits", limits) != devices:
        raise UsageError(f"limits: {len(limits)} for {devices} devices; give one a device")
    most = [load if lim is None else min(whole_units("limit", lim), load) for lim in limits]
    room = sum(most)
    if room < load:
        raise DataError(
            f"a load of {load} units is {load - room} more than the devices' limits allow"
            f" ({room}); raise a limit or add a device"
        )
    return load, most


def _length(name: str, values: Any) -> int:
    try:
        return len(values)
    except TypeError:
        raise UsageError(f"{name}: {values!r}, it must be a sequence, one a device") from None


def whole_units(name: str, value: int) -> int:
    try:
        units = operator.index(value)
    except TypeError:
        raise UsageError(f"{name}: {value!r} must be a whole number of units") from None
    if isinstance(value, bool):
        raise UsageError(f"{name}: {value} must be a whole number of units")
    if units < 0:
        raise UsageError(f"{name}: {units} units is negative")
    return units
