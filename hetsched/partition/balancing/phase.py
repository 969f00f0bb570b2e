"""A device's report of one run: total seconds, or seconds per phase (NEC, US 9,038,088)."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from hetsched.errors import UsageError


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


def parse_readings(
    times: Sequence[DeviceTime], shares: Sequence[int], new_devices: int = 0
) -> list[Reading | None]:
    """Check the times of a run with `shares`; None for a device that is lost.

    The time of a device without a share is set to 0. The last `new_devices` ones took no part in
    the run and may be missing.

    Raises
    ------
    UsageError
        Not one time per device; a time that isn't finite, is negative, or is 0 though the device
        had a share; a key that is no Phase.
    """
    if isinstance(times, str | Mapping) or not hasattr(times, "__len__"):
        raise UsageError(f"tell: {times!r} must be a sequence with one entry per device")
    if len(times) == len(shares) - new_devices:
        times = [*times, *[0.0] * new_devices]
    if len(times) != len(shares):
        raise UsageError(f"tell: {len(times)} times for {len(shares)} devices; give one each")
    return [
        None if time is None else _reading(index, time, share)
        for index, (time, share) in enumerate(zip(times, shares, strict=True))
    ]


def _reading(index: int, time: float | Mapping[Phase, float], share: int) -> Reading:
    if isinstance(time, Mapping):
        reading = _phases(index, time)
    else:
        reading = Reading(_seconds(f"device {index}", time))
    if share and not 0 < reading.busy < math.inf:
        raise UsageError(
            f"tell: device {index}: {reading.busy} seconds for {share} units; the time must be"
            " positive and finite"
        )
    return reading if share else Reading(0.0)


def _phases(index: int, times: Mapping[Phase, float]) -> Reading:
    for key in times:
        if not isinstance(key, Phase):
            raise UsageError(f"tell: device {index}: {key!r} is no Phase")
    compute, transfer, converge = (
        _seconds(f"device {index}, {phase.name}", times.get(phase, 0.0))
        for phase in (Phase.COMPUTE, Phase.TRANSFER, Phase.CONVERGE)
    )
    wait = _wait(index, times.get(Phase.WAIT), compute + transfer + converge)
    return Reading(compute, transfer, converge, wait)


def _wait(index: int, wait: float | None, busy: float) -> float | None:
    """Check a wait, which may be a difference of times: slightly below 0 by rounding."""
    if wait is None:
        return None
    if isinstance(wait, numbers.Real) and -ROUNDING * busy <= float(wait) < 0:
        return 0.0
    return _seconds(f"device {index}, WAIT", wait)


def _seconds(label: str, value: object) -> float:
    if not isinstance(value, numbers.Real):
        raise UsageError(f"tell: {label}: {value!r} is not a number of seconds")
    if not 0 <= float(value) < math.inf:
        raise UsageError(f"tell: {label}: {value} seconds must be finite and not negative")
    return float(value)
