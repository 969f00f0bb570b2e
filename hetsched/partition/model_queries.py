"""Questions to models, and what an answer must be: partitioners believe nothing unseen.

A model of somebody else may be wrong in any way. Whatever it does, the caller gets one of our
errors, which names the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hetsched.errors import HetschedError, UsageError
from hetsched.models import DeviceModel, SpeedFunction


def speed_functions(models: Sequence[SpeedFunction]) -> list[SpeedFunction]:
    """The models, a DeviceModel as its total.

    Raises
    ------
    UsageError
        One of them has no `.time(x)`.
    """
    curves: list[Any] = [m.total if isinstance(m, DeviceModel) else m for m in models]
    able = {kind for kind in set(map(type, curves)) if hasattr(kind, "time")}
    for index, curve in enumerate(curves):
        if type(curve) not in able and not hasattr(curve, "time"):
            raise UsageError(
                f"model of device {index}: a {type(curve).__name__}, it must have .time(x) and"
                " .speed(x)"
            )
    return curves


def time_of(index: int, model: SpeedFunction, units: float) -> float:
    """Seconds for `units` > 0 on device `index`; infinite: it can't do that many.

    Raises
    ------
    UsageError
        The model's time is 0, negative or no number, or it fails; whatever error of ours a model
        raises is passed on.
    """
    seconds = answer(index, model, "time", units)
    if not seconds > 0:
        raise wrong_time(index, units, seconds)
    return seconds


def speed_of(index: int, model: SpeedFunction, units: float) -> float:
    """Units a second at `units` > 0; 0 if the device can't do that many.

    Raises
    ------
    UsageError
        The model's speed is negative, infinite or no number, or 0 where its time is finite.
    """
    speed = answer(index, model, "speed", units)
    if 0 < speed < math.inf or (speed == 0 and time_of(index, model, units) == math.inf):
        return speed
    raise UsageError(
        f"model of device {index}: a speed of {speed} units a second for {units:g} units, it must"
        " be positive and finite"
    )


def answer(index: int, model: SpeedFunction, method: str, units: float) -> float:
    """What `method` of the model of device `index` says of `units`, whatever number that is.

    Raises
    ------
    UsageError
        It fails, or says something that is no number; errors of ours are passed on.
    """
    try:
        return float(getattr(model, method)(units))
    except HetschedError:
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"model of device {index}: {method}({units:g}) failed, {said[:200]}"
        ) from error


def wrong_time(index: int, units: float, seconds: float) -> UsageError:
    return UsageError(
        f"model of device {index}: {seconds} seconds for {units:g} units, it must be more than 0"
    )
