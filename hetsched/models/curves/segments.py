"""The closed form of all our curves: pieces on which time and its inverse are fractions.

On piece j, from the point (x_j, t_j) on, with u = x - x_j and d = t - t_j::

    t(x) = t_j + c u / (s + m u)          x(t) = x_j + s d / (c - m d)

A piece that is linear in speed from (x_a, t_a) to (x_b, t_b) (Clarke 5.2; DFPA) has s = s_a, m the
slope of the speed, and c = x_b (t_b - t_a) / (t_b (x_b - x_a)): the textbook's x = a T / (1 - m T)
written about the knot, so that no digits cancel on a piece whose times hardly rise. Constant speed
is c = 1, m = 0. Both directions are exact at the knots.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[Any]
"""Integers or floats."""
Piece = tuple[float, float, float, float, float]
"""(t_j seconds, x_j units, s units/s, c, m): one piece, as in the module's docstring."""


class Segments:
    """A strictly increasing time function made of pieces, and its inverse. Immutable.

    Parameters
    ----------
    pieces : sequence of Piece
        In order of t_j and x_j; the first starts at t = 0, x = 0. Two pieces with the same x_j are
        a jump of time there (a fixed cost at x = 0).
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.table: Floats = np.array(pieces, dtype=np.float64).T.copy()
        """(5, pieces): one row per parameter, for evaluating many curves at once."""
        self._lists: tuple[list[float], list[float], list[list[float]]] | None = None
        self._fingerprint: bytes | None = None

    @property
    def fingerprint(self) -> bytes:
        """Return the pieces as bytes: equal curves have equal fingerprints."""
        if self._fingerprint is None:
            self._fingerprint = self.table.tobytes()
        return self._fingerprint

    def _scalars(self) -> tuple[list[float], list[float], list[list[float]]]:
        """Return starts in seconds and in units, and the pieces, to evaluate single numbers.

        Made on first use: they take eight times the memory of the table.
        """
        if self._lists is None:
            starts, units = self.table[:2].tolist()
            self._lists = starts, units, self.table.T.tolist()
        return self._lists

    @overload
    def time(self, x: float) -> float: ...
    @overload
    def time(self, x: Numbers) -> Floats: ...
    def time(self, x: float | Numbers) -> float | Floats:
        """Return the seconds for x units; 0 for x = 0. O(log pieces) per value."""
        if isinstance(x, np.ndarray):
            piece = np.searchsorted(self.table[1], np.maximum(x, 0), "right") - 1
            start, units, speed, scale, bend = self.table[:, piece]
            over = np.maximum(x, 0) - units
            seconds: Floats = np.where(x > 0, start + scale * over / (speed + bend * over), 0.0)
            return seconds
        if x <= 0:
            return 0.0
        _, starts, pieces = self._lists or self._scalars()
        start, units, speed, scale, bend = pieces[bisect_right(starts, x) - 1]
        over = x - units
        return float(start + scale * over / (speed + bend * over))

    @overload
    def speed(self, x: float) -> float: ...
    @overload
    def speed(self, x: Numbers) -> Floats: ...
    def speed(self, x: float | Numbers) -> float | Floats:
        """Return units per second at a load of x; the first piece's initial speed for x = 0."""
        first = float(self.table[2, 0])
        if isinstance(x, np.ndarray):
            is_loaded = x > 0
            seconds = np.where(is_loaded, self.time(x), 1.0)
            return np.where(is_loaded, x / seconds, first)
        return float(x / self.time(x)) if x > 0 else first

    @overload
    def derivative(self, x: float) -> float: ...
    @overload
    def derivative(self, x: Numbers) -> Floats: ...
    def derivative(self, x: float | Numbers) -> float | Floats:
        """Return dt/dx at x, seconds per unit; to the right at a knot."""
        over = np.maximum(np.asarray(x, dtype=np.float64), 0.0)
        piece = np.searchsorted(self.table[1], over, "right") - 1
        _, units, speed, scale, bend = self.table[:, piece]
        slope: Floats = scale * speed / (speed + bend * (over - units)) ** 2
        return slope if isinstance(x, np.ndarray) else float(slope)

    @overload
    def inverse(self, seconds: float) -> float: ...
    @overload
    def inverse(self, seconds: Numbers) -> Floats: ...
    def inverse(self, seconds: float | Numbers) -> float | Floats:
        """Return the largest real x with time(x) <= seconds, or 0. O(log pieces) per value."""
        if isinstance(seconds, np.ndarray):
            seconds = np.maximum(seconds, 0.0)
            piece = np.searchsorted(self.table[0], seconds, "right") - 1
            start, units, speed, scale, bend = self.table[:, piece]
            late = seconds - start
            reached: Floats = units + speed * late / (scale - bend * late)
            return reached
        if seconds <= 0:
            return 0.0
        starts, _, pieces = self._lists or self._scalars()
        start, units, speed, scale, bend = pieces[bisect_right(starts, seconds) - 1]
        late = seconds - start
        return float(units + speed * late / (scale - bend * late))


def through_knots(units: Floats, seconds: Floats) -> Segments:
    """Return the curve that is linear in speed between knots and constant outside them.

    Parameters
    ----------
    units, seconds : (n,) float64, n >= 1
        Both strictly increasing and positive.
    """
    x, t = units.tolist(), seconds.tolist()
    speed = [a / b for a, b in zip(x, t, strict=True)]
    pieces: list[Piece] = [(0.0, 0.0, speed[0], 1.0, 0.0)]
    for j in range(len(x) - 1):
        width = x[j + 1] - x[j]
        scale = x[j + 1] * (t[j + 1] - t[j]) / (t[j + 1] * width)
        pieces.append((t[j], x[j], speed[j], scale, (speed[j + 1] - speed[j]) / width))
    pieces.append((t[-1], x[-1], speed[-1], 1.0, 0.0))
    return Segments(pieces)
