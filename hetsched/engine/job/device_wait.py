"""What a job waits for from a device, and for how long. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hetsched.transport.device_messages import DeviceStep


@dataclass(frozen=True, slots=True)
class DeviceWait:
    """A wait for a device.

    Attributes
    ----------
    since : float, seconds
        The start, or the last progress.
    seconds : float
        The longest wait from then on.
    reason : str
        Why the device is killed after that.
    """

    since: float
    seconds: float
    reason: str

    @property
    def end(self) -> float:
        return self.since + self.seconds


def extended(
    wait: DeviceWait, other: DeviceWait | None, own_step: DeviceStep | None = None
) -> DeviceWait:
    """Return `wait` for a device that also works for another job, which may come first.

    `own_step`: what it does for this job, if that is what it is doing.
    """
    if other is None:
        return wait
    if own_step is not None:
        return DeviceWait(max(wait.since, own_step.since), wait.seconds, wait.reason)
    return DeviceWait(wait.since, wait.seconds + other.seconds, wait.reason)


def longest(waits: Iterable[Mapping[str, DeviceWait]]) -> dict[str, DeviceWait]:
    """Return device -> the wait of several jobs that allows it the most seconds."""
    result: dict[str, DeviceWait] = {}
    for mapping in waits:
        for device, wait in mapping.items():
            if device not in result or wait.seconds > result[device].seconds:
                result[device] = wait
    return result
