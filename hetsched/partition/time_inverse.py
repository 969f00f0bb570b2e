"""x_i(T), the units that each device finishes in time T, and t_i(x), for all devices at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsched.models import Curve, SpeedFunction
from hetsched.models.curves.packed import Indices, PackedSegments
from hetsched.models.curves.segments import Floats, Numbers
from hetsched.partition.distribution import Distribution, Models, distribution_of
from hetsched.partition.model_queries import speed_functions, speed_of, time_of

Units = NDArray[np.int64]
MIN_GUESS, MAX_GUESS = np.finfo(float).tiny, np.finfo(float).max
"""Seconds."""


class TimeInverse:
    """The units that each device finishes in a given time, within its limit; and the inverse.

    Models with a closed form (`Curve.segments`) are packed into one table and evaluated together.
    Any other model is evaluated by `.time` and `.speed` of whole units, once per size.

    Parameters
    ----------
    models : sequence of SpeedFunction
    max_shares : sequence of int, units
    """

    def __init__(self, models: Models, max_shares: Sequence[int]) -> None:
        self._models: list[Any] = list(speed_functions(models))
        self.max_shares = np.array(max_shares, dtype=np.int64)
        closed = {kind: issubclass(kind, Curve) for kind in set(map(type, self._models))}
        self._is_closed = np.array([closed[type(model)] for model in self._models])
        self._closed: Indices = np.flatnonzero(self._is_closed)
        self._packed_index = np.cumsum(self._is_closed) - 1
        self._packed = PackedSegments([self._models[i].segments for i in self._closed.tolist()])
        self._falling = [i for i in self._closed.tolist() if self._models[i].may_fall]
        self._open = {
            i: _CachedModel(i, self._models[i]) for i in np.flatnonzero(~self._is_closed).tolist()
        }

    @property
    def has_opaque_models(self) -> bool:
        """Whether some models have no closed form; their times may be infinite, or fall."""
        return bool(self._open)

    def even_speeds(self, load: int) -> Floats:
        """Return (p,) float64, units/s at an even share or the limit; 0 if the limit is 0."""
        even = np.minimum(max(load // len(self.max_shares), 1), self.max_shares)
        speeds = np.zeros(len(even))
        closed = np.flatnonzero(self._is_closed & (even > 0))
        with np.errstate(over="ignore", divide="ignore"):
            speeds[closed] = even[closed] / self.seconds(closed, even[closed])
        for i in self._open:
            if even[i]:
                speeds[i] = speed_of(i, self._models[i], int(even[i]))
        return speeds

    def guess(self, load: int) -> float:
        """Estimate the time of `load` units from the speeds at even shares."""
        with np.errstate(over="ignore", divide="ignore"):
            return float(np.clip(load / self.even_speeds(load).sum(), MIN_GUESS, MAX_GUESS))

    def units(self, seconds: float) -> tuple[Floats, float]:
        """Return (p,) float64, units done in `seconds` per device; their total rate, units/s.

        Without a closed form: whole units, and an estimated rate.
        """
        parts, rates = np.zeros(len(self.max_shares)), np.zeros(len(self.max_shares))
        parts[self._closed], rates[self._closed] = self._packed.inverse(seconds)
        for i, model in self._open.items():
            parts[i] = model.units(seconds, int(self.max_shares[i]))
            rates[i] = parts[i] / seconds if seconds > 0 else 0.0
        full = parts >= self.max_shares
        return np.where(full, self.max_shares, parts), float(rates[~full].sum())

    def seconds(self, devices: Indices, units: Numbers) -> Floats:
        """Return (k,) float64: seconds of device `devices[j]` for a whole number `units[j]`.

        For a model whose times fall with size, the nearest nondecreasing times.

        Raises
        ------
        UsageError
            A time isn't positive.
        """
        if not self._open:
            return self._packed.time(devices, units)
        times = np.zeros(len(devices))
        closed = self._is_closed[devices]
        times[closed] = self._packed.time(self._packed_index[devices[closed]], units[closed])
        for j in np.flatnonzero(~closed).tolist():
            times[j] = self._open[int(devices[j])].seconds(int(units[j]))
        return times

    def distribution(self, shares: Units) -> Distribution:
        """Make the Distribution of (p,) int64 `shares`, one per device."""
        times = self.seconds(np.arange(len(shares)), shares)
        for i in self._falling:
            times[i] = time_of(i, self._models[i], int(shares[i])) if shares[i] else 0.0
        return distribution_of(shares.tolist(), times)


class _CachedModel:
    """The times of one model, each evaluated once."""

    def __init__(self, index: int, model: SpeedFunction) -> None:
        self._index, self._model = int(index), model
        self._seconds = {0: 0.0}

    def seconds(self, units: int) -> float:
        if units not in self._seconds:
            self._seconds[units] = time_of(self._index, self._model, units)
        return self._seconds[units]

    def units(self, seconds: float, max_share: int) -> int:
        """Return the largest x <= `max_share` with time(x) <= `seconds`, if times rise."""
        low, high = 0, max_share + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.seconds(middle) <= seconds:
                low = middle
            else:
                high = middle
        return low
