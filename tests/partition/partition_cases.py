"""Random cases for partitioners, by seed, and the least makespan by exhaustive search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from hetsched.models import Affine, Constant, DeviceModel, PiecewiseLinear

Floats = NDArray[np.float64]


class Scalar:
    """A third-party model: accepts single numbers only, and has just `time` and `speed`."""

    def __init__(self, curve: Any) -> None:
        self._curve = curve

    def time(self, x: float) -> float:
        return float(self._curve.time(self._number(x)))

    def speed(self, x: float) -> float:
        return float(self._curve.speed(self._number(x)))

    def _number(self, x: Any) -> Any:
        if isinstance(x, np.ndarray):
            raise TypeError("a number, please")
        return x


class Table:
    """A table of the times of 1, 2, 3, ... units; accepts numbers and arrays of them."""

    def __init__(self, times: Sequence[float] | Floats) -> None:
        self.times: Floats = np.concatenate(([0.0], times))

    def time(self, x: Any) -> Any:
        return self.times[x]

    def speed(self, x: Any) -> Any:
        return x / self.times[x]


@dataclass(frozen=True)
class Case:
    """A case: 1 to 6 devices, 1 to 60 units; None: no limits."""

    models: list[Any]
    load: int
    limits: list[int | None] | None

    def least(self) -> float:
        """Return the least makespan, s: best(m) = min over x of max(best(m - x), t(x))."""
        best = np.full(self.load + 1, np.inf)
        best[0] = 0.0
        sizes = np.arange(self.load + 1)
        rest = sizes[:, None] - sizes
        limits = self.limits or [None] * len(self.models)
        for model, limit in zip(self.models, limits, strict=True):
            times = np.array([0.0, *(float(model.time(x)) for x in range(1, self.load + 1))])
            times[self.load + 1 if limit is None else limit + 1 :] = np.inf
            ends = np.where(rest >= 0, np.maximum(best[rest], times), np.inf)
            best = ends.min(axis=1)
        return float(best[self.load])


def monotone(seed: int) -> Case:
    """Draw a case with non-decreasing times, of every kind of model that has them."""
    rng = np.random.default_rng(seed)
    load = int(rng.integers(1, 61))
    models = [_rising(rng) for _ in range(rng.integers(1, 7))]
    return Case(models, load, _limits(rng, len(models), load))


def arbitrary(seed: int) -> Case:
    """Draw a case with arbitrary times: few different ones, to get ties, or many."""
    rng = np.random.default_rng(seed)
    load = int(rng.integers(1, 61))
    models = [Table(_any_times(rng)) for _ in range(rng.integers(1, 7))]
    return Case(models, load, _limits(rng, len(models), load))


def _rising(rng: Generator) -> Any:
    kind = rng.integers(7)
    if kind == 0:
        return Constant(float(rng.uniform(0.01, 100)))
    if kind == 1:
        return Affine(float(rng.uniform(0, 10)), float(rng.uniform(0.01, 10)))
    if kind == 2:
        # Plateaus and jumps.
        return Table(np.maximum.accumulate(rng.integers(1, 30, 60) + rng.integers(0, 2, 60) * 0.1))
    if kind == 3:
        return Table(np.cumsum(rng.exponential(1.0, 60) ** 3))
    sizes = rng.integers(1, 61, rng.integers(1, 7)).tolist()
    points = zip(sizes, np.exp(rng.uniform(-3, 3, len(sizes))).tolist(), strict=True)
    curve = PiecewiseLinear(points)
    if kind == 4:
        return DeviceModel(curve, curve)
    return Scalar(curve) if kind == 5 else curve


def _any_times(rng: Generator) -> Floats:
    kind = rng.integers(3)
    if kind == 0:
        return rng.integers(1, 10, 60).astype(np.float64)
    if kind == 1:
        return rng.uniform(0.1, 100, 60)
    x = np.arange(1, 61)
    return x * np.where(x % rng.integers(2, 9), rng.uniform(1, 3), 1.0) / rng.uniform(1, 10)


def _limits(rng: Generator, devices: int, load: int) -> list[int | None] | None:
    if rng.random() < 0.5:
        return None
    limits: list[int | None] = rng.integers(0, load + 1, devices).tolist()
    for i in np.flatnonzero(rng.random(devices) < 0.3).tolist():
        limits[i] = None
    if sum(load if limit is None else limit for limit in limits) < load:
        limits[int(rng.integers(devices))] = None
    return limits
