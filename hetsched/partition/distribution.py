"""The result of a partition, and the checks that every partitioner starts with."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.errors import DataError, UsageError
from hetsched.models import SpeedFunction

Models = Sequence[SpeedFunction]
Limits = Sequence[int | None]
"""The most units that each device takes; None: any number."""


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
    """The Distribution of `shares` under `models`."""
    times = [
        float(model.time(share)) for model, share in zip(models, shares, strict=True) if share
    ]
    if not times:
        return Distribution(tuple(shares), 0.0, 0.0)
    least, most = min(times), max(times)
    spread = (most - least) / least if most > least > 0 else 0.0
    return Distribution(tuple(shares), most, spread)


def checked(models: Models, load: int, limits: Limits | None) -> tuple[int, list[int]]:
    """`load` as an int, and the most units each device can have (at most the load).

    Raises
    ------
    UsageError
        No devices; a negative or fractional load or limit; not one limit a device.
    DataError
        The limits leave no room for the load.
    """
    if not models:
        raise UsageError("a partition needs at least one device")
    load = _count("load", load)
    if limits is None:
        return load, [load] * len(models)
    if len(limits) != len(models):
        raise UsageError(f"limits: {len(limits)} for {len(models)} devices; give one a device")
    most = [load if lim is None else min(_count("limit", lim), load) for lim in limits]
    room = sum(most)
    if room < load:
        raise DataError(
            f"a load of {load} units is {load - room} more than the devices' limits allow"
            f" ({room}); raise a limit or add a device"
        )
    return load, most


def _count(name: str, value: int) -> int:
    try:
        units = operator.index(value)
    except TypeError:
        raise UsageError(f"{name}: {value!r} must be a whole number of units") from None
    if units < 0:
        raise UsageError(f"{name}: {units} units is negative")
    return units
