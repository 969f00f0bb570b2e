"""A device's report of one run: total seconds, or seconds per phase (NEC, US 9,038,088)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from numbers import Real

from hetsched.errors import UsageError
from hetsched.models.validation import require_non_negative


class Phase(Enum):
    """The phases of one iteration on one device. A common barrier ends the iteration."""

    COMPUTE = "compute"
    """CMPT: computation, including copies to and from an accelerator."""
    TRANSFER = "transfer"
    """XFER: data transfer between devices."""
    WAIT = "wait"
    """WAIT: idle, for data of other devices or at the barrier."""
    CONVERGE = "converge"
    """CONV: the device's convergence check."""


ROUNDING = 1e-9
"""Relative error allowed in a difference of times."""

DeviceTime = float | Mapping[Phase, float] | None
"""Seconds, seconds of each phase, or None: the device is lost."""


@dataclass(frozen=True)
class Reading:
    """One device's seconds in one run. `wait`: None if it wasn't reported."""

    compute: float
    transfer: float = 0.0
    converge: float = 0.0
    wait: float | None = None

    @property
    def busy(self) -> float:
        """Seconds excluding waits."""
        return self.compute + self.transfer + self.converge


def parse_readings(times: Sequence[DeviceTime], shares: Sequence[int]) -> list[Reading | None]:
    """Check the times of a run with `shares`; None for a device that is lost.

    The time of a device without a share is set to 0.

    Raises
    ------
    UsageError
        Not one time per device; a time that isn't finite, is negative, or is 0 though the device
        had a share; a key that is no Phase.
    """
    if isinstance(times, str | Mapping) or not hasattr(times, "__len__"):
        raise UsageError(f"tell: {times!r} must be a sequence with one entry per device")
    if len(times) != len(shares):
        raise UsageError(f"tell: {len(times)} times for {len(shares)} devices; give one each")
    return [
        None if time is None else _reading(f"tell: device {index}", time, share)
        for index, (time, share) in enumerate(zip(times, shares, strict=True))
    ]


def _reading(label: str, time: float | Mapping[Phase, float], share: int) -> Reading:
    if isinstance(time, Mapping):
        reading = _phases(label, time)
    else:
        reading = Reading(require_non_negative(label, time, " s"))
    if share and not 0 < reading.busy < math.inf:
        raise UsageError(
            f"{label}: {reading.busy} seconds for {share} units; the time must be positive and"
            " finite"
        )
    return reading if share else Reading(0.0)


def _phases(label: str, times: Mapping[Phase, float]) -> Reading:
    for key in times:
        if not isinstance(key, Phase):
            raise UsageError(f"{label}: {key!r} is no Phase")
    compute, transfer, converge = (
        require_non_negative(f"{label}, {phase.name}", times.get(phase, 0.0), " s")
        for phase in (Phase.COMPUTE, Phase.TRANSFER, Phase.CONVERGE)
    )
    wait = times.get(Phase.WAIT)
    if isinstance(wait, Real) and -ROUNDING * (compute + transfer + converge) <= wait < 0:
        wait = 0.0  # a difference of times
    if wait is not None:
        wait = require_non_negative(f"{label}, WAIT", wait, " s")
    return Reading(compute, transfer, converge, wait)
