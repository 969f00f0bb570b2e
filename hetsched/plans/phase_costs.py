"""What each phase of a chunk costs, tabulated by its size: models are asked once, not in loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetsched.models import DeviceModel
from hetsched.plans.timeline import seconds_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Costs:
    """Seconds of copy in, compute and copy out of a chunk of `size` units: element `size` of each.

    Attributes
    ----------
    copy_in, compute, copy_out : (largest + 1,) float64, seconds
        0 for no units, and everywhere for a phase that isn't there.
    duplex : (2,) float
    """

    copy_in: Floats
    compute: Floats
    copy_out: Floats
    duplex: tuple[float, float]

    @property
    def largest(self) -> int:
        return len(self.compute) - 1

    @property
    def phases(self) -> tuple[Floats, Floats, Floats]:
        """Copy in, compute and copy out."""
        return self.copy_in, self.compute, self.copy_out

    def up_to(self, largest: int) -> Costs:
        """The same for chunks of at most `largest` units."""
        c_in, compute, c_out = (phase[: largest + 1] for phase in self.phases)
        return Costs(c_in, compute, c_out, self.duplex)


def costs_of(model: DeviceModel, largest: int) -> Costs:
    """The costs of chunks of up to `largest` units on a device like `model`. O(largest)."""
    units = np.arange(1, largest + 1, dtype=float)
    copy_in, compute, copy_out = (
        np.zeros(largest + 1)
        if curve is None
        else np.concatenate(([0.0], seconds_of(curve, units)))
        for curve in (model.h2d, model.compute, model.d2h)
    )
    return Costs(copy_in, compute, copy_out, model.duplex)
