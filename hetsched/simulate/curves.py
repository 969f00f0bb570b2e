"""Speed functions that machines are made of. They know everything and learn nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from hetsched.errors import UsageError
from hetsched.models import SpeedFunction

Linear = Literal["time", "speed"]
MOST = 1e6
"""Times as slow, or as wide as the capacity. Arbitrary: no machine pages so."""


@dataclass(frozen=True)
class Saturating:
    """Speed that rises with size towards a peak, and then sinks slowly as caches overflow.

    t(x) = (x + half) (1 + x / fade) / peak: a fixed cost of half / peak seconds, and a speed that
    would be halved at x = `fade`. Its time strictly increases.

    Parameters
    ----------
    peak : float, units/s
    half : float, units
        Size at which the fixed cost takes as long as the work.
    fade : float, units

    Raises
    ------
    UsageError
        One of them isn't positive, or infinite.
    """

    peak: float
    half: float
    fade: float

    def __post_init__(self) -> None:
        for name, value in (("peak", self.peak), ("half", self.half), ("fade", self.fade)):
            if not 0 < value < math.inf:
                raise UsageError(f"{name}: {value}, it must be positive and finite")

    def time(self, x: Any, /) -> Any:
        """Seconds for `x` units (number or array); 0 for x = 0."""
        units = np.asarray(x, dtype=np.float64)
        seconds = (units + self.half) * (1 + units / self.fade) / self.peak
        return _like(x, np.where(units > 0, seconds, 0.0))

    def speed(self, x: Any, /) -> Any:
        """Units a second at `x` units (number or array)."""
        units = np.asarray(x, dtype=np.float64)
        speed = self.peak * units / (units + self.half) / (1 + units / self.fade)
        return _like(x, speed)


@dataclass(frozen=True)
class Paging:
    """A machine that pages once its share doesn't fit into its memory.

    Beyond `capacity` the time of a unit rises, until at (1 + width) capacity it is `factor` times
    what it was; from there on it stays so.

    Parameters
    ----------
    within : SpeedFunction
        The machine with memory enough.
    capacity : float, units
    factor, width : float
    linear : "time" or "speed"
        What changes linearly in between: the time of a unit, which makes a cliff of its speed, or
        the speed.

    Raises
    ------
    UsageError
        A capacity that isn't positive and finite; a width or factor that no machine has; nothing
        of that name can be linear.
    """

    within: SpeedFunction
    capacity: float
    factor: float
    width: float
    linear: Linear = "time"

    def __post_init__(self) -> None:
        if not 0 < self.capacity < math.inf:
            raise UsageError(f"capacity: {self.capacity} units, it must be positive and finite")
        if not 1 / MOST <= self.width <= MOST:
            raise UsageError(
                f"width: {self.width} of the capacity, it must be {1 / MOST:g} to {MOST:g}"
            )
        if not 1 <= self.factor <= MOST:
            raise UsageError(f"factor: {self.factor}, it must be 1 to {MOST:g}")
        if self.linear not in get_args(Linear):
            raise UsageError(f"linear: {self.linear!r}, it must be time or speed")

    def time(self, x: Any, /) -> Any:
        """Seconds for `x` units (number or array)."""
        beyond = (np.asarray(x, dtype=np.float64) / self.capacity - 1) / self.width
        gone = np.clip(beyond, 0.0, 1.0)
        if self.linear == "time":
            slower = 1 + (self.factor - 1) * gone
        else:
            slower = 1 / (1 - (1 - 1 / self.factor) * gone)
        return _like(x, np.asarray(self.within.time(x)) * slower)

    def speed(self, x: Any, /) -> Any:
        """Units a second at `x` units (number or array), x > 0."""
        units = np.asarray(x, dtype=np.float64)
        return _like(x, units / np.asarray(self.time(units)))

    def pages(self, share: float) -> bool:
        """Whether a share of so many units doesn't fit."""
        return share > self.capacity


def _like(x: Any, values: Any) -> Any:
    """A float for a number, an array for an array."""
    return float(values) if np.ndim(x) == 0 else values
