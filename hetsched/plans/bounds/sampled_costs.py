"""Costs of phases at some sizes of chunks, for bounds: nowhere above the costs of other sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hetsched.models import DeviceModel
from hetsched.plans.phase_costs import Floats, phase_seconds

MAX_EXACT_SIZE = 4096
"""Units up to which costs are evaluated at every size; neighbouring larger sizes differ by this
part. So a device that holds 10^9 units is evaluated at 55,000 sizes."""
ROUNDING = 1e-9
"""Relative curvature below which costs count as straight."""


@dataclass(frozen=True)
class SampledCosts:
    """Seconds of copy in, compute and copy out of chunks of some sizes.

    Straight lines between these points are nowhere above the costs, provided that times rise.

    Attributes
    ----------
    sizes : (n,) float64, units
        From 1 to the largest chunk.
    phases : three (n,) float64, seconds
    duplex : (2,) float
    """

    sizes: Floats
    phases: tuple[Floats, Floats, Floats]
    duplex: tuple[float, float]

    @property
    def largest(self) -> int:
        """The largest chunk, units."""
        return int(self.sizes[-1])

    def up_to(self, largest: int) -> SampledCosts:
        """Return the costs of chunks of at most `largest` units."""
        if largest >= self.largest:
            return self
        count = int(np.searchsorted(self.sizes, largest, "right"))
        sizes = np.append(self.sizes[:count], largest)
        c_in, compute, c_out = (
            np.append(phase[:count], np.interp(largest, self.sizes, phase))
            for phase in self.phases
        )
        first = sizes[:-1] < largest
        keep = np.append(first, True)
        return SampledCosts(sizes[keep], (c_in[keep], compute[keep], c_out[keep]), self.duplex)


def sample_sizes(largest: int, step: float = 1 / MAX_EXACT_SIZE) -> Floats:
    """Return sizes from 1 to `largest` units.

    All up to MAX_EXACT_SIZE; of more, those whose relative distance is below `step` are omitted.
    """
    if largest <= MAX_EXACT_SIZE:
        return np.arange(1.0, largest + 1)
    exact = round(1 / step)
    count = int(np.log(largest / exact) / step) + 2
    return np.union1d(np.arange(1.0, exact), np.geomspace(exact, largest, count).round())


def sampled_costs(model: DeviceModel, largest: int) -> SampledCosts:
    """Evaluate the phases of `model` for chunks of up to `largest` units. O(log largest)."""
    sizes = sample_sizes(largest)
    phases = phase_seconds(model, sizes)
    gaps = np.flatnonzero(np.diff(sizes) > 1)
    if len(gaps) and all(_is_straight(sizes, phase) for phase in phases):
        c_in, compute, c_out = (phase[[0, -1]] * (1 - ROUNDING) for phase in phases)
        return SampledCosts(sizes[[0, -1]], (c_in, compute, c_out), model.duplex)
    if len(gaps):
        # Sizes just below the next sample take at least as long as the sample before them.
        positions = gaps + 1
        phases = _inserted(phases, positions, gaps)
        sizes = np.insert(sizes, positions, sizes[positions] - 1)
    return SampledCosts(sizes, phases, model.duplex)


def _inserted(
    phases: tuple[Floats, Floats, Floats], positions: np.ndarray, sources: np.ndarray
) -> tuple[Floats, Floats, Floats]:
    copy_in, compute, copy_out = (np.insert(phase, positions, phase[sources]) for phase in phases)
    return copy_in, compute, copy_out


def _is_straight(sizes: Floats, seconds: Floats) -> bool:
    """Return whether all points are on one line, which `seconds` then follow between them too."""
    line = np.interp(sizes, sizes[[0, -1]], seconds[[0, -1]])
    return bool(np.abs(seconds - line).max() <= ROUNDING * seconds.max())
