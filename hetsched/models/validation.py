"""Checks of what comes from outside: one clear sentence instead of whatever NumPy would say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from numbers import Real
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from hetsched.errors import UsageError

Array = NDArray[Any]


def positive(name: str, value: Any, unit: str = "") -> float:
    """`value` as a float. Raises UsageError unless it is a positive finite number."""
    found = _real(name, value)
    if not 0 < found < math.inf:
        raise UsageError(f"{name}: {_shown(value)}{unit}, it must be positive and finite")
    return found


def not_negative(name: str, value: Any, unit: str = "") -> float:
    """`value` as a float. Raises UsageError unless it is a finite number, 0 or more."""
    found = _real(name, value)
    if not 0 <= found < math.inf:
        raise UsageError(f"{name}: {_shown(value)}{unit}, it must be 0 or more and finite")
    return found


def checked(units: Any, seconds: Any) -> tuple[float, float]:
    """Both as floats. Raises UsageError unless both are positive finite numbers."""
    return positive("observation: units", units), positive("observation: seconds", seconds)


def pairs(observations: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The observations one by one. Raises UsageError where there is no (units, seconds)."""
    try:
        found = iter(observations)
    except TypeError:
        raise UsageError(f"observations: {_shown(observations)} is no series of pairs") from None
    for one in found:
        try:
            units, seconds = one
        except (TypeError, ValueError):
            raise UsageError(f"observation: {_shown(one)}, it must be (units, seconds)") from None
        yield units, seconds


@overload
def asked(name: str, x: float, least: float = 0.0) -> float: ...
@overload
def asked(name: str, x: Array, least: float = 0.0) -> Array: ...
def asked(name: str, x: float | Array, least: float = 0.0) -> float | Array:
    """A number, as a float, or an array of numbers that a curve is asked about.

    Raises
    ------
    UsageError
        It is neither; some number is below `least`, infinite or not a number.
    """
    found: float | Array
    if isinstance(x, np.ndarray):
        if x.dtype.kind not in "iuf":
            raise UsageError(f"{name}: an array of {x.dtype}, it must be of numbers")
        found, fine = x, not x.size or bool(x.min() >= least and x.max() < math.inf)
    else:
        found = _real(name, x)
        fine = least <= found < math.inf
    if not fine:
        must = "finite" if least < 0 else "0 or more and finite"
        raise UsageError(f"{name}: {_shown(x)}, it must be {must}")
    return found


def _real(name: str, value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise UsageError(f"{name}: {_shown(value)} is not a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _shown(value: Any) -> str:
    """`value` on one short line."""
    text = " ".join((str if isinstance(value, Real) else repr)(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
