"""A device's report of one run: total seconds, or seconds per phase (NEC, US 9,038,088)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from numbers import Real

from hetsched.errors import UsageError
from hetsched.job import IterationSeconds
from hetsched.models.curves import EQUAL
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


DeviceTime = float | Mapping[Phase, float] | None
"""Seconds, seconds of each phase, or None: the device is lost."""


def parse_readings(
    times: Sequence[DeviceTime], shares: Sequence[int]
) -> list[IterationSeconds | None]:
    """Check the times of a run with `shares`; None for a device that is lost. Raises UsageError.

    The time of a device without a share is set to 0.
    """
    if isinstance(times, str | Mapping) or not hasattr(times, "__len__"):
        raise UsageError(f"tell: {times!r} must be a sequence with one entry per device")
    if len(times) != len(shares):
        raise UsageError(f"tell: {len(times)} times for {len(shares)} devices; give one each")
    return [
        None if time is None else _reading(f"tell: device {index}", time, share)
        for index, (time, share) in enumerate(zip(times, shares, strict=True))
    ]


def _reading(label: str, time: float | Mapping[Phase, float], share: int) -> IterationSeconds:
    if isinstance(time, Mapping):
        reading = _phases(label, time)
    else:
        reading = IterationSeconds(require_non_negative(label, time, " s"))
    if share and not 0 < reading.busy < math.inf:
        raise UsageError(
            f"{label}: {reading.busy} seconds for {share} units; the time must be positive and"
            " finite"
        )
    return reading if share else IterationSeconds()


def _phases(label: str, times: Mapping[Phase, float]) -> IterationSeconds:
    checked = {}
    for phase, seconds in times.items():
        if not isinstance(phase, Phase):
            raise UsageError(f"{label}: {phase!r} is no Phase")
        # A wait is a difference of times.
        is_rounding = phase is Phase.WAIT and isinstance(seconds, Real) and -EQUAL < seconds < 0
        name = f"{label}, {phase.name}"
        checked[phase.value] = require_non_negative(name, 0.0 if is_rounding else seconds, " s")
    return IterationSeconds(**checked)
