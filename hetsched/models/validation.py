"""Validation of users' arguments, with clear messages instead of NumPy's."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from numbers import Real
from typing import Any

import numpy as np

from hetsched.errors import UsageError
from hetsched.models.curves import Number
from hetsched.units import quoted


def require_positive(name: str, value: Any, unit: str = "") -> float:
    number = _as_number(name, value)
    if not 0 < number < math.inf:
        raise UsageError(f"{name}: {quoted(value)}{unit}, it must be positive and finite")
    return number


def require_non_negative(name: str, value: Any, unit: str = "") -> float:
    number = _as_number(name, value)
    if not 0 <= number < math.inf:
        raise UsageError(f"{name}: {quoted(value)}{unit}, it must be 0 or more and finite")
    return number


def require_count(name: str, value: Any, minimum: int = 0) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise UsageError(f"{name}: {quoted(value)}, it must be a whole number") from None
    if isinstance(value, bool) or count < minimum:
        raise UsageError(f"{name}: {value}, it must be a whole number of at least {minimum}")
    return count


def require_observation(units: Any, seconds: Any) -> tuple[float, float]:
    return (
        require_positive("observation: units", units),
        require_positive("observation: seconds", seconds),
    )


def require_pairs(observations: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    try:
        iterator = iter(observations)
    except TypeError:
        text = quoted(observations)
        raise UsageError(f"observations: {text}, it must be (units, seconds) pairs") from None
    for observation in iterator:
        try:
            units, seconds = observation
        except (TypeError, ValueError):
            text = quoted(observation)
            raise UsageError(f"observation: {text}, it must be (units, seconds)") from None
        yield units, seconds


def require_load(x: Number) -> Number:
    """Return a curve's argument, a number as a float, or an array. Raises UsageError."""
    if not isinstance(x, np.ndarray):
        return require_non_negative("load", x)
    if x.dtype.kind not in "iuf":
        raise UsageError(f"load: an array of {x.dtype}, it must be numeric")
    if x.size and not (x.min() >= 0 and x.max() < math.inf):
        raise UsageError(f"load: {quoted(x)}, it must be 0 or more and finite")
    return x


def _as_number(name: str, value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise UsageError(f"{name}: {quoted(value)} is not a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf
