"""Speed functions of simulated machines: exact, without learning."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from hetsched.errors import UsageError
from hetsched.models import SpeedFunction

Linear = Literal["time", "speed"]
MAX_FACTOR = 1e6
"""Maximum slowdown by paging, and maximum of its width in capacities. Arbitrary: far beyond real
machines."""


@dataclass(frozen=True)
class Saturating:
    """Speed that rises with size towards a peak, then falls slowly as caches overflow.

    t(x) = (x + half) (1 + x / fade) / peak: a fixed cost of half / peak seconds, and a speed that
    would be halved at x = `fade`. The time strictly increases.
    """

    peak: float  # units/s
    half: float  # units; the fixed cost equals the time of so many
    fade: float  # units

    def time(self, x: Any, /) -> Any:
        units = np.asarray(x, dtype=np.float64)
        seconds = (units + self.half) * (1 + units / self.fade) / self.peak
        return _like(x, np.where(units > 0, seconds, 0.0))

    def speed(self, x: Any, /) -> Any:
        units = np.asarray(x, dtype=np.float64)
        speed = self.peak * units / (units + self.half) / (1 + units / self.fade)
        return _like(x, speed)


@dataclass(frozen=True)
class Paging:
    """A machine that pages when its share exceeds its memory.

    Beyond `capacity` the time per unit rises to `factor` times its value at (1 + width) capacity,
    and is constant from there on.
    """

    within: SpeedFunction  # the machine with enough memory
    capacity: float  # units
    factor: float
    width: float
    linear: Linear = "time"  # what changes linearly in between; with time, speed falls off a cliff

    def __post_init__(self) -> None:
        if not 0 < self.capacity < math.inf:
            raise UsageError(f"capacity: {self.capacity} units must be positive and finite")
        if not 1 / MAX_FACTOR <= self.width <= MAX_FACTOR:
            raise UsageError(
                f"width: {self.width} of the capacity must be {1 / MAX_FACTOR:g} to {MAX_FACTOR:g}"
            )
        if not 1 <= self.factor <= MAX_FACTOR:
            raise UsageError(f"factor: {self.factor} must be 1 to {MAX_FACTOR:g}")
        if self.linear not in get_args(Linear):
            raise UsageError(f"linear: {self.linear!r} must be time or speed")

    def time(self, x: Any, /) -> Any:
        beyond = (np.asarray(x, dtype=np.float64) / self.capacity - 1) / self.width
        progress = np.clip(beyond, 0.0, 1.0)
        if self.linear == "time":
            slower = 1 + (self.factor - 1) * progress
        else:
            slower = 1 / (1 - (1 - 1 / self.factor) * progress)
        return _like(x, np.asarray(self.within.time(x)) * slower)

    def speed(self, x: Any, /) -> Any:
        units = np.asarray(x, dtype=np.float64)
        return _like(x, units / np.asarray(self.time(units)))

    def pages(self, share: float) -> bool:
        return share > self.capacity


@dataclass(frozen=True)
class Noisy:
    """A curve with multiplicative log-normal noise, drawn again for each evaluation."""

    curve: SpeedFunction
    draw: Callable[[int], ArrayLike]  # n -> n random exponents

    def time(self, x: Any, /) -> Any:
        seconds = np.asarray(self.curve.time(x), dtype=np.float64)
        exponents = np.reshape(self.draw(seconds.size), seconds.shape)
        return seconds * np.exp(exponents)

    def speed(self, x: Any, /) -> Any:
        return x / self.time(x)


def _like(x: Any, values: Any) -> Any:
    return float(values) if np.ndim(x) == 0 else values
