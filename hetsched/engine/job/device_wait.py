"""What a job waits for from a device, and for how long. Pure."""

from __future__ import annotations

from dataclasses import dataclass


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


def combined(wait: DeviceWait, other: DeviceWait | None) -> DeviceWait:
    """Return how long a device may take that works for two jobs, which do not wait in turn.

    It is at work on either, so its last progress for any of them counts, and the longer wait.
    """
    if other is None:
        return wait
    return DeviceWait(max(wait.since, other.since), max(wait.seconds, other.seconds), wait.reason)
