"""The result of a partitioner, and the checks of its arguments and of its models' times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetsched.errors import DataError, HetschedError, UsageError
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.models.curves import Floats
from hetsched.models.validation import require_count

Models = Sequence[SpeedFunction]
Limits = Sequence[int | None]
"""The maximum units for each device; None: no limit."""
Shares = tuple[int, ...]
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

    shares: Shares
    makespan: float
    spread: float
    reason: str = ""


def predict(models: Models, shares: Sequence[int]) -> Distribution:
    """Predict the times of `shares`. Raises UsageError, or DataError if one is infinite."""
    curves = speed_functions(models)
    times = [
        time_of(i, curve, share) if share else 0.0
        for i, (curve, share) in enumerate(zip(curves, shares, strict=True))
    ]
    return distribution_of(shares, np.array(times))


def distribution_of(shares: Sequence[int], times: Floats) -> Distribution:
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


def invalid_time_error(index: int, units: float, seconds: float) -> UsageError:
    return UsageError(
        f"model of device {index}: {seconds} seconds for {units:g} units must be more than 0"
    )


# ---- requests


def check_request(models: Models, load: int, limits: Limits | None) -> tuple[int, list[int]]:
    """Return `load` as an int, and the maximum share of each device (at most the load).

    Raises UsageError, or DataError if the limits leave no room for the load.
    """
    devices = _length("models", models)
    if not devices:
        raise UsageError("a partition needs at least one device")
    load = require_count("load", load)
    if load > MAX_LOAD:
        raise UsageError(f"load: {load} units, at most {MAX_LOAD}; use larger units")
    if limits is None:
        return load, [load] * devices
    if _length("limits", limits) != devices:
        raise UsageError(f"limits: {len(limits)} for {devices} devices; give one each")
    max_shares = [
        load if limit is None else min(require_count("limit", limit), load) for limit in limits
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


# ---- models: any failure of a third-party one becomes our error, which names the device


def speed_functions(models: Models) -> list[Any]:
    curves: list[Any] = [m.total if isinstance(m, DeviceModel) else m for m in models]
    valid = {kind for kind in set(map(type, curves)) if hasattr(kind, "time")}
    for index, curve in enumerate(curves):
        if type(curve) not in valid and not hasattr(curve, "time"):
            raise UsageError(
                f"model of device {index}: a {type(curve).__name__} must have .time(x) and"
                " .speed(x)"
            )
    return curves


def time_of(index: int, model: SpeedFunction, units: float) -> float:
    """Return the seconds of `units` > 0 on device `index`; infinite if it can't hold them."""
    seconds = evaluate(f"model of device {index}", model, "time", units)
    if not seconds > 0:
        raise invalid_time_error(index, units, seconds)
    return seconds


def evaluate(label: str, model: SpeedFunction, method: str, units: float) -> float:
    """Call `method` of a model. Our own errors pass through."""
    try:
        return float(getattr(model, method)(units))
    except HetschedError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{label}: {method}({units:g}) failed, {reason[:200]}") from error
