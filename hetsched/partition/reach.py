"""x_i(T): how far every device gets in a time T, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hetsched.models import Curve, DeviceModel
from hetsched.models.segments import Floats
from hetsched.partition.distribution import Models


class Reach:
    """The units that each device finishes in a given time, within its limit.

    Models that have a closed form (`segments`) are packed into one table and evaluated together;
    others by their `inverse`, or else, to a whole unit, by bisection on `time`.

    Attributes
    ----------
    rate : float, units/s
        Derivative of the sum of the last `units` (an estimate where there is no closed form).
    jumps : int
        Devices that are known to a whole unit only.
    """

    def __init__(self, models: Models, most: Sequence[int]) -> None:
        self._models: list[Any] = [m.total if isinstance(m, DeviceModel) else m for m in models]
        self._most = np.array(most, dtype=np.float64)
        closed = [i for i, model in enumerate(self._models) if isinstance(model, Curve)]
        self._closed = np.array(closed, dtype=np.intp)
        self._table = _packed([self._models[i].segments.table for i in closed])
        self._others = [i for i, model in enumerate(self._models) if not isinstance(model, Curve)]
        self.jumps = sum(not hasattr(self._models[i], "inverse") for i in self._others)
        self.rate = 0.0

    def guess(self, load: int) -> float:
        """A time near the one in which `load` units are done: by the speeds at even shares."""
        even = np.minimum(max(load / len(self._models), 1.0), self._most)
        speeds = [
            float(model.speed(x))
            for model, x in zip(self._models, even.tolist(), strict=True)
            if x
        ]
        return load / sum(speeds)

    def units(self, seconds: float) -> Floats:
        """(p,) float64, units that each device finishes in `seconds`."""
        parts = np.zeros(len(self._models))
        rates = np.zeros(len(self._models))
        if len(self._closed):
            parts[self._closed], rates[self._closed] = self._evaluate(seconds)
        for i in self._others:
            parts[i] = _inverse(self._models[i], seconds, int(self._most[i]))
            rates[i] = parts[i] / seconds if seconds > 0 else 0.0
        full = parts >= self._most
        self.rate = float(rates[~full].sum())
        return np.where(full, self._most, parts)

    def _evaluate(self, seconds: float) -> tuple[Floats, Floats]:
        piece = (self._table[0] <= seconds).sum(axis=1) - 1
        start, units, speed, scale, bend = self._table[:, np.arange(len(piece)), piece]
        late = seconds - start
        left = scale - bend * late
        return units + speed * late / left, speed * scale / (left * left)


def _packed(tables: Sequence[Floats]) -> Floats:
    """(5, p, longest) float64; pieces that aren't there start at infinity."""
    longest = max((table.shape[1] for table in tables), default=0)
    packed = np.full((5, len(tables), longest), np.inf)
    for i, table in enumerate(tables):
        packed[:, i, : table.shape[1]] = table
    return packed


def _inverse(model: Any, seconds: float, most: int) -> float:
    """The largest x up to `most` with time(x) <= seconds: real, or a whole number by bisection."""
    if hasattr(model, "inverse"):
        return min(float(model.inverse(seconds)), float(most))
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        if float(model.time(middle)) <= seconds:
            low = middle
        else:
            high = middle
    return float(low)
