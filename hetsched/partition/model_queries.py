"""Evaluation of models, with checked results.

Any failure of a third-party model becomes one of our errors, which names the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hetsched.errors import HetschedError, UsageError
from hetsched.models import SpeedFunction


def speed_functions(models: Sequence[SpeedFunction]) -> list[SpeedFunction]:
    """Replace each model that has a `speed_function` (a DeviceModel) by that function.

    Raises
    ------
    UsageError
        A model has no `.time(x)`.
    """
    curves: list[Any] = [getattr(model, "speed_function", model) for model in models]
    valid = {kind for kind in set(map(type, curves)) if hasattr(kind, "time")}
    for index, curve in enumerate(curves):
        if type(curve) not in valid and not hasattr(curve, "time"):
            raise UsageError(
                f"model of device {index}: a {type(curve).__name__} must have .time(x) and"
                " .speed(x)"
            )
    return curves


def time_of(index: int, model: SpeedFunction, units: float) -> float:
    """Return the seconds of `units` > 0 on device `index`; infinite if it can't hold them.

    Raises
    ------
    UsageError
        The model fails, or its time is 0, negative or NaN. Our own errors pass through.
    """
    seconds = evaluate(index, model, "time", units)
    if not seconds > 0:
        raise invalid_time_error(index, units, seconds)
    return seconds


def speed_of(index: int, model: SpeedFunction, units: float) -> float:
    """Return units per second at `units` > 0; 0 if the device can't hold them.

    Raises
    ------
    UsageError
        The model's speed is negative, infinite or NaN, or 0 where its time is finite.
    """
    speed = evaluate(index, model, "speed", units)
    if 0 < speed < math.inf or (speed == 0 and time_of(index, model, units) == math.inf):
        return speed
    raise UsageError(
        f"model of device {index}: a speed of {speed} units a second for {units:g} units must be"
        " positive and finite"
    )


def evaluate(index: int, model: SpeedFunction, method: str, units: float) -> float:
    """Call `method` of the model of device `index` with `units`; accept any number.

    Raises
    ------
    UsageError
        It fails, or its result is not a number. Our own errors pass through.
    """
    try:
        return float(getattr(model, method)(units))
    except HetschedError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"model of device {index}: {method}({units:g}) failed, {reason[:200]}"
        ) from error


def invalid_time_error(index: int, units: float, seconds: float) -> UsageError:
    return UsageError(
        f"model of device {index}: {seconds} seconds for {units:g} units must be more than 0"
    )
