"""The cost of each phase of a chunk, tabulated by size, so that searches evaluate no models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetsched.errors import HetschedError, UsageError
from hetsched.models import DeviceModel
from hetsched.plans.device_plan import Overlap

Floats = NDArray[np.float64]

MAX_QUOTED_ERROR = 200
"""Characters of another library's error that a message quotes."""


@dataclass(frozen=True)
class PhaseCosts:
    """Seconds of copy in, compute and copy out of a chunk, indexed by its units.

    Attributes
    ----------
    copy_in, compute, copy_out : (largest + 1,) float64, seconds
        0 for 0 units; all 0 for a phase that the device doesn't have.
    duplex : (2,) float
    """

    copy_in: Floats
    compute: Floats
    copy_out: Floats
    duplex: tuple[float, float]

    @property
    def largest(self) -> int:
        """The largest chunk, units."""
        return len(self.compute) - 1

    @property
    def phases(self) -> tuple[Floats, Floats, Floats]:
        """Copy in, compute and copy out."""
        return self.copy_in, self.compute, self.copy_out

    def up_to(self, largest: int) -> PhaseCosts:
        """Return the costs of chunks of at most `largest` units."""
        copy_in, compute, copy_out = (phase[: largest + 1] for phase in self.phases)
        return PhaseCosts(copy_in, compute, copy_out, self.duplex)

    def busiest(self, overlap: Overlap) -> Floats:
        """Return the seconds of a chunk on its busiest engine, (largest + 1,) float64."""
        is_shared = overlap is Overlap.SINGLE
        link = (
            self.copy_in + self.copy_out if is_shared else np.maximum(self.copy_in, self.copy_out)
        )
        busiest: Floats = np.maximum(link, self.compute)
        return busiest


def costs_of(model: DeviceModel, largest: int) -> PhaseCosts:
    """Tabulate the costs of chunks of up to `largest` units on a device. O(largest)."""
    units = np.arange(1, largest + 1, dtype=float)
    copy_in, compute, copy_out = (
        np.concatenate(([0.0], seconds)) for seconds in phase_seconds(model, units)
    )
    return PhaseCosts(copy_in, compute, copy_out, model.duplex)


def phase_seconds(model: DeviceModel, units: Floats) -> tuple[Floats, Floats, Floats]:
    """Return seconds of copy in, compute and copy out for each of `units`; 0 without a curve.

    Raises
    ------
    UsageError
        As for `seconds_of`.
    """
    copy_in, compute, copy_out = (
        np.zeros(units.shape) if curve is None else seconds_of(curve, units)
        for curve in (model.h2d, model.compute, model.d2h)
    )
    return copy_in, compute, copy_out


def seconds_of(curve: Any, units: Floats) -> Floats:
    """Evaluate `curve.time` at each of `units`; scalar-only curves work, but slower.

    Raises
    ------
    UsageError
        The curve raises, or returns a negative time or NaN. Our own errors pass through.
    """
    try:
        seconds = np.asarray(curve.time(units), dtype=float) + np.zeros(units.shape)
    except HetschedError:
        raise
    except Exception:  # a third-party curve may fail on arrays in any way
        scalars = [_scalar_seconds(curve, x) for x in units.ravel().tolist()]
        seconds = np.array(scalars).reshape(units.shape)
    valid = seconds >= 0  # False for NaN
    if not valid.all():
        index = int(np.argmin(valid))
        raise UsageError(
            f"model: {seconds.flat[index]} seconds for {units.flat[index]:g} units; times must be"
            " 0 or more"
        )
    return seconds


def _scalar_seconds(curve: Any, units: float) -> float:
    try:
        return float(curve.time(units))
    except HetschedError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"model: time({units:g}) failed: {reason[:MAX_QUOTED_ERROR]}") from error
