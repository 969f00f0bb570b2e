"""Cubic Hermite pieces (`Cubics`), and what the curves made of them share (`SmoothCurve`).

These curves have a continuous first derivative, which the root finder of `partition.smooth` needs.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import overload

import numpy as np

from hetsched.models.curves.learning_curve import Fit, Learned
from hetsched.models.curves.segments import Floats, Numbers
from hetsched.models.validation import asked


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
        """Values and derivatives at `x`, alike in shape. O(log pieces) a value."""
        piece = np.searchsorted(self.starts[1:], x, "right")
        u = x - self.starts[piece]
        y, slope, square, cube = self.table[:, piece]
        with np.errstate(over="ignore"):  # far outside, where the outer pieces are straight
            value: Floats = y + u * (slope + u * (square + u * cube))
            derivative: Floats = slope + u * (2 * square + u * (3 * cube))
        return value, derivative


class SmoothCurve(Learned[Fit]):
    """A speed function with a continuous derivative that learns from observations."""

    @abstractmethod
    def _at(self, x: Floats) -> tuple[Floats, Floats]:
        """Seconds and seconds a unit at `x` >= 0. Raises UsageError when unknown."""

    @overload
    def time(self, x: float, /) -> float: ...
    @overload
    def time(self, x: Numbers, /) -> Floats: ...
    def time(self, x: float | Numbers, /) -> float | Floats:
        """Seconds for `x` units (number or array); 0 for x = 0.

        Raises
        ------
        UsageError
            Nothing was observed yet; `x` is no number or array of numbers, negative or infinite.
        """
        return _like(x, self._at(_loads(x))[0])

    @overload
    def derivative(self, x: float, /) -> float: ...
    @overload
    def derivative(self, x: Numbers, /) -> Floats: ...
    def derivative(self, x: float | Numbers, /) -> float | Floats:
        """Seconds that one unit more takes, at `x` units (number or array)."""
        return _like(x, self._at(_loads(x))[1])

    @overload
    def speed(self, x: float, /) -> float: ...
    @overload
    def speed(self, x: Numbers, /) -> Floats: ...
    def speed(self, x: float | Numbers, /) -> float | Floats:
        """Units a second at `x` units (number or array). Raises UsageError as `time` does."""
        loads = _loads(x)
        seconds, derivative = self._at(loads)
        some = loads > 0
        return _like(x, np.where(some, loads, 1.0) / np.where(some, seconds, derivative))


def _loads(x: float | Numbers) -> Floats:
    return np.asarray(asked("load", x), dtype=np.float64)


def _like(x: float | Numbers, values: Floats) -> float | Floats:
    return values if isinstance(x, np.ndarray) else float(values)
