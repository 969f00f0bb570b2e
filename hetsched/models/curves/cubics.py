"""Cubic Hermite pieces (`Cubics`), and the base of the curves made of them (`SmoothCurve`).

These curves have a continuous first derivative, which the root finder of `partition.smooth` needs.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import overload

import numpy as np

from hetsched.models.curves.fitted_curve import Fit, FittedCurve
from hetsched.models.curves.segments import Floats, Numbers
from hetsched.models.validation import require_argument


class Cubics:
    """A function through knots with given slopes there; linear outside them. Immutable.

    Parameters
    ----------
    x, y, slopes : (n,) float64, n >= 2
        `x` strictly increasing.
    """

    def __init__(self, x: Floats, y: Floats, slopes: Floats) -> None:
        width = np.diff(x)
        rise = np.diff(y) / width
        square = (3 * rise - 2 * slopes[:-1] - slopes[1:]) / width
        cube = (slopes[:-1] + slopes[1:] - 2 * rise) / width**2
        # The last piece is the line beyond the last knot, the first one that before the first.
        self.starts: Floats = np.concatenate((x[:1], x))
        zero = np.zeros(1)
        self.table: Floats = np.array(
            [
                np.concatenate((y[:1], y)),
                np.concatenate((slopes[:1], slopes)),
                np.concatenate((zero, square, zero)),
                np.concatenate((zero, cube, zero)),
            ]
        )

    def at(self, x: Floats) -> tuple[Floats, Floats]:
        """Return values and derivatives at `x`, in its shape. O(log pieces) per value."""
        piece = np.searchsorted(self.starts[1:], x, "right")
        u = x - self.starts[piece]
        y, slope, square, cube = self.table[:, piece]
        with np.errstate(over="ignore"):  # far outside, where the outer pieces are straight
            value: Floats = y + u * (slope + u * (square + u * cube))
            derivative: Floats = slope + u * (2 * square + u * (3 * cube))
        return value, derivative


class SmoothCurve(FittedCurve[Fit]):
    """A speed function with a continuous derivative that learns from observations."""

    @abstractmethod
    def _at(self, x: Floats) -> tuple[Floats, Floats]:
        """Return seconds and seconds per unit at `x` >= 0. Raises UsageError without data."""

    @overload
    def time(self, x: float, /) -> float: ...
    @overload
    def time(self, x: Numbers, /) -> Floats: ...
    def time(self, x: float | Numbers, /) -> float | Floats:
        """Return the seconds for `x` units (number or array); 0 for x = 0.

        Raises
        ------
        UsageError
            There are no observations; `x` isn't numeric, or is negative or infinite.
        """
        return _like(x, self._at(_loads(x))[0])

    @overload
    def derivative(self, x: float, /) -> float: ...
    @overload
    def derivative(self, x: Numbers, /) -> Floats: ...
    def derivative(self, x: float | Numbers, /) -> float | Floats:
        """Return dt/dx at `x` units (number or array), seconds per unit."""
        return _like(x, self._at(_loads(x))[1])

    @overload
    def speed(self, x: float, /) -> float: ...
    @overload
    def speed(self, x: Numbers, /) -> Floats: ...
    def speed(self, x: float | Numbers, /) -> float | Floats:
        """Return units per second at `x` units (number or array). Raises UsageError as `time`."""
        loads = _loads(x)
        seconds, derivative = self._at(loads)
        is_loaded = loads > 0
        ratio = np.where(is_loaded, loads, 1.0) / np.where(is_loaded, seconds, derivative)
        return _like(x, ratio)


def _loads(x: float | Numbers) -> Floats:
    return np.asarray(require_argument("load", x), dtype=np.float64)


def _like(x: float | Numbers, values: Floats) -> float | Floats:
    return values if isinstance(x, np.ndarray) else float(values)
