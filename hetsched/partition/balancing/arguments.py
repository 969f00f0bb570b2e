"""Checks of the arguments that a Balancer is constructed with."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from typing import Any

from hetsched.errors import UsageError


def positive_count(name: str, value: int) -> int:
    """Return `value` as an int. Raises UsageError unless it is a whole number of at least 1."""
    try:
        count = operator.index(value)
    except TypeError:
        raise UsageError(f"{name}: {value!r} must be a whole number") from None
    if count < 1 or isinstance(value, bool):
        raise UsageError(f"{name}: {value} must be at least 1")
    return count


def non_negative(name: str, value: float, unit: str = "") -> float:
    """Return `value` as a float. Raises UsageError unless it is finite and not negative."""
    if not isinstance(value, numbers.Real) or not 0 <= float(value) < math.inf:
        raise UsageError(f"{name}: {value!r}{unit} must be finite and not negative")
    return float(value)


def list_per_device(name: str, values: Sequence[Any], devices: int) -> list[Any]:
    """Return `values` as a list. Raises UsageError unless there is one value per device."""
    if not hasattr(values, "__len__") or len(values) != devices:
        raise UsageError(f"{name}: {values!r} must be a sequence of {devices}, one per device")
    return list(values)


def check_callable(name: str, value: object) -> None:
    """Raise UsageError unless `value` is None or callable."""
    if value is not None and not callable(value):
        raise UsageError(f"{name}: {value!r} must be callable")


def check_models(models: Sequence[Any]) -> None:
    """Raise UsageError if a model lacks `.time` or `.speed`."""
    for index, model in enumerate(models):
        if not all(callable(getattr(model, name, None)) for name in ("time", "speed")):
            raise UsageError(f"models: {model!r}, of device {index}, has no .time and .speed")
