"""x_i(T), how far every device gets in a time T, and t_i(x), of all devices at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsched.models import Curve, SpeedFunction
from hetsched.models.curves.packed import Indices, PackedSegments
from hetsched.models.curves.segments import Floats, Numbers
from hetsched.partition.distribution import Distribution, Models, described
from hetsched.partition.model_queries import speed_functions, speed_of, time_of

Units = NDArray[np.int64]
LEAST, MOST = np.finfo(float).tiny, np.finfo(float).max
"""Seconds that a guess may be."""


class Reach:
    """What each device finishes in a given time, within its limit, and how long its units take.

    Models that have a closed form (`segments`) are packed into one table and evaluated together.
    Of any other model only `.time` and `.speed` are asked, of whole units, every size once.

    Parameters
    ----------
    models : sequence of SpeedFunction
    most : sequence of int, units
        The limits.
    """

    def __init__(self, models: Models, most: Sequence[int]) -> None:
        self._models: list[Any] = list(speed_functions(models))
        self.most = np.array(most, dtype=np.int64)
        kinds = {kind: issubclass(kind, Curve) for kind in set(map(type, self._models))}
        self._ours = np.array([kinds[type(model)] for model in self._models])
        self._closed: Indices = np.flatnonzero(self._ours)
        self._place = np.cumsum(self._ours) - 1
        self._packed = PackedSegments([self._models[i].segments for i in self._closed.tolist()])
        self._falling = [i for i in self._closed.tolist() if self._models[i].falls]
        others = np.flatnonzero(~self._ours).tolist()
        self._others = {i: _Known(i, self._models[i]) for i in others}

    def speeds(self, load: int) -> Floats:
        """(p,) float64, units/s at an even share, or the device's limit; 0 if it takes none."""
        even = np.minimum(max(load // len(self.most), 1), self.most)
        speeds = np.zeros(len(even))
        ours = np.flatnonzero(self._ours & (even > 0))
        with np.errstate(over="ignore", divide="ignore"):
            speeds[ours] = even[ours] / self.seconds(ours, even[ours])
        for i in self._others:
            if even[i]:
                speeds[i] = speed_of(i, self._models[i], int(even[i]))
        return speeds

    def guess(self, load: int) -> float:
        """A time near the one in which `load` units are done: by the speeds at even shares."""
        with np.errstate(over="ignore", divide="ignore"):
            return float(np.clip(load / self.speeds(load).sum(), LEAST, MOST))

    def units(self, seconds: float) -> tuple[Floats, float]:
        """(p,) float64, units that each device finishes, and by how many more a second they rise.

        Those without a closed form in whole units, their rate an estimate.
        """
        parts, rates = np.zeros(len(self.most)), np.zeros(len(self.most))
        parts[self._closed], rates[self._closed] = self._packed.inverse(seconds)
        for i, known in self._others.items():
            parts[i] = known.units(seconds, int(self.most[i]))
            rates[i] = parts[i] / seconds if seconds > 0 else 0.0
        full = parts >= self.most
        return np.where(full, self.most, parts), float(rates[~full].sum())

    def seconds(self, devices: Indices, units: Numbers) -> Floats:
        """(k,) float64: how long device `devices[j]` takes for a whole number `units[j]`.

        Of a model whose times fall with size, the nearest that rise.

        Raises
        ------
        UsageError
            A time isn't positive.
        """
        if not self._others:
            return self._packed.time(devices, units)
        times = np.zeros(len(devices))
        ours = self._ours[devices]
        times[ours] = self._packed.time(self._place[devices[ours]], units[ours])
        for j in np.flatnonzero(~ours).tolist():
            times[j] = self._others[int(devices[j])].seconds(int(units[j]))
        return times

    def priced(self, shares: Units) -> Distribution:
        """The Distribution of (p,) int64 `shares`, one a device."""
        times = self.seconds(np.arange(len(shares)), shares)
        for i in self._falling:
            times[i] = time_of(i, self._models[i], int(shares[i])) if shares[i] else 0.0
        return described(shares.tolist(), times)


class _Known:
    """The times of one model, each asked once."""

    def __init__(self, index: int, model: SpeedFunction) -> None:
        self._index, self._model = int(index), model
        self._seconds = {0: 0.0}

    def seconds(self, units: int) -> float:
        if units not in self._seconds:
            self._seconds[units] = time_of(self._index, self._model, units)
        return self._seconds[units]

    def units(self, seconds: float, most: int) -> int:
        """The largest whole x up to `most` with time(x) <= `seconds`, if times rise."""
        low, high = 0, most + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.seconds(middle) <= seconds:
                low = middle
            else:
                high = middle
        return low
