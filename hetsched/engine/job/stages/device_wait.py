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
