"""Granules: a share whose chunks may have very many units is planned in multiples of some units.

Tables by size then have at most `MAX_GRANULES` entries, and neither time nor memory of planning
grow with the load. A granule is a tiny part of the largest chunk. The last one may be incomplete,
so plans are exact at the edges: their chunks sum to the share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.plans.device_plan import DevicePlan
from hetsched.plans.phase_costs import Floats

MAX_GRANULES = 1 << 14
"""Granules of the largest chunk. With four times as many, planning takes twice as long, and no
plan is measurably faster."""


@dataclass(frozen=True)
class CoarseCurve:
    """`curve` as a function of granules of `granule` units each."""

    curve: SpeedFunction
    granule: int

    def time(self, x: Any, /) -> Any:
        return self.curve.time(self.granule * x)

    def speed(self, x: Any, /) -> Any:
        return self.curve.speed(self.granule * x) / self.granule

    @property
    def points(self) -> Floats:
        """(n, 2) float64, granules and seconds. Raises AttributeError as `curve` does."""
        curve: Any = self.curve
        return np.asarray(curve.points, dtype=float) / (self.granule, 1.0)


@dataclass(frozen=True)
class GranularShare:
    """A share with its device, in granules.

    Attributes
    ----------
    units : int
        The share.
    granule : int, units
        1: sizes are units, and nothing is rounded.
    share : int, granules
        The last one may be incomplete.
    model : DeviceModel
        By granules.
    memory : MemoryDemand
        By granules.
    largest : int, granules
        The largest chunk that fits.
    """

    units: int
    granule: int
    share: int
    model: DeviceModel
    memory: MemoryDemand
    largest: int

    def in_units(self, plan: DevicePlan) -> DevicePlan:
        """Return `plan`, whose chunks are in granules, with chunks in units."""
        if self.granule == 1:
            return plan
        excess = self.share * self.granule - self.units
        largest = max(plan.chunks)
        sub_distributions = []
        for chunks in plan.sub_distributions:
            sizes = [size * self.granule for size in chunks]
            if excess and largest in chunks:
                sizes[chunks.index(largest)] -= excess
                excess = 0
            sub_distributions.append(tuple(sizes))
        return DevicePlan(tuple(sub_distributions), plan.mode, plan.slots)


def granular(
    share: int, model: DeviceModel, memory: MemoryDemand, max_granules: int = MAX_GRANULES
) -> GranularShare:
    """Return `share` units, 1 or more, in granules; the largest chunk has at most `max_granules`.

    Raises
    ------
    DataError
        Not even one unit fits.
    """
    largest = memory.max_chunk(share)
    granule = -(-largest // max_granules)
    if granule == 1:
        return GranularShare(share, 1, share, model, memory, largest)
    coarse_share, coarse_memory = -(-share // granule), memory.in_granules(granule)
    largest = coarse_memory.max_chunk(coarse_share)
    model = _coarse(model, granule)
    return GranularShare(share, granule, coarse_share, model, coarse_memory, largest)


def _coarse(model: DeviceModel, granule: int) -> DeviceModel:
    return replace(
        model,
        total=CoarseCurve(model.total, granule),
        compute=CoarseCurve(model.compute, granule),
        h2d=None if model.h2d is None else CoarseCurve(model.h2d, granule),
        d2h=None if model.d2h is None else CoarseCurve(model.d2h, granule),
    )
