"""The result of a partitioner, and the checks of its arguments."""

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
from hetsched.partition.model_queries import invalid_time_error, speed_functions, time_of

Models = Sequence[SpeedFunction]
Limits = Sequence[int | None]
"""The maximum units for each device; None: no limit."""
MAX_LOAD = 2**53
"""Units; floats represent all whole numbers up to here."""


@dataclass(frozen=True)
class Distribution:
    """All shares, with the times that the models predict.

    Attributes
    ----------
    shares : tuple of int, units
        One per device, summing to the load.
    makespan : float, seconds
        The longest time.
    spread : float
        (max - min) / min of the times of the devices with a share; 0.0 for one device.
    reason : str
        Why a different method was used; empty if the requested one was.
    """

    shares: tuple[int, ...]
    makespan: float
    spread: float
    reason: str = ""


def predict(models: Models, shares: Sequence[int]) -> Distribution:
    """Predict the times of `shares` with `models`.

    Raises
    ------
    UsageError, DataError
        As `distribution_of`; a model lacks `.time`, or its time isn't positive.
    """
    curves = speed_functions(models)
    times = [
        time_of(i, curve, share) if share else 0.0
        for i, (curve, share) in enumerate(zip(curves, shares, strict=True))
    ]
    return distribution_of(shares, np.array(times))


def distribution_of(shares: Sequence[int], times: Floats) -> Distribution:
    """Make the Distribution of `shares` that take (p,) float64 `times` seconds.

    Raises
    ------
    UsageError
        The time of a device with a share is 0 or not a number.
    DataError
        The time of a device with a share is infinite.
    """
    working = np.flatnonzero(shares)
    if not len(working):
        return Distribution(tuple(shares), 0.0, 0.0)
    busy = times[working]
    shortest, longest = float(busy.min()), float(busy.max())
    if not shortest > 0:
        first = int(working[np.flatnonzero(~(busy > 0))[0]])
        raise invalid_time_error(first, shares[first], float(times[first]))
    if longest == math.inf:
        raise infinite_time_error(sum(shares))
    return Distribution(tuple(shares), longest, (longest - shortest) / shortest)


def infinite_time_error(load: int) -> DataError:
    return DataError(f"no split of {load} units has a finite time by the models")


def check_request(models: Models, load: int, limits: Limits | None) -> tuple[int, list[int]]:
    """Return `load` as an int, and the maximum share of each device (at most the load).

    Raises
    ------
    UsageError
        No devices; a load or limit is negative or not whole; the load exceeds `MAX_LOAD`; limits
        aren't one per device.
    DataError
        The limits leave no room for the load.
    """
    devices = _length("models", models)
    if not devices:
        raise UsageError("a partition needs at least one device")
    load = whole_units("load", load)
    if load > MAX_LOAD:
        raise UsageError(f"load: {load} units, at most {MAX_LOAD}; use larger units")
    if limits is None:
        return load, [load] * devices
    if _length("limits", limits) != devices:
        raise UsageError(f"limits: {len(limits)} for {devices} devices; give one each")
    max_shares = [
        load if limit is None else min(whole_units("limit", limit), load) for limit in limits
    ]
    room = sum(max_shares)
    if room < load:
        raise DataError(
            f"a load of {load} units is {load - room} more than the devices' limits allow"
            f" ({room}); raise a limit or add a device"
        )
    return load, max_shares


def _length(name: str, values: Any) -> int:
    try:
        return len(values)
    except TypeError:
        raise UsageError(f"{name}: {values!r} must be a sequence, one per device") from None


def whole_units(name: str, value: int) -> int:
    """Return `value` as an int. Raises UsageError unless it is a whole number of at least 0."""
    try:
        units = operator.index(value)
    except TypeError:
        raise UsageError(f"{name}: {value!r} must be a whole number of units") from None
    if isinstance(value, bool):
        raise UsageError(f"{name}: {value} must be a whole number of units")
    if units < 0:
        raise UsageError(f"{name}: {units} units is negative")
    return units
