"""The failures of devices during one job, and the devices that it no longer uses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hetsched.engine.health.failure_tally import MAX_FAILURES
from hetsched.errors import JobFailed
from hetsched.text import MAX_GROUP_ROWS, grouped_rows


@dataclass
class DeviceFailures:
    """What a job knows about its devices.

    Attributes
    ----------
    excluded : dict
        Device that the job no longer uses -> why.
    abandoned : frozenset of str
        Devices whose process won't restart.
    culprits : set of str
        Devices that have missed a deadline or reported a fault: their process is about to end.
    """

    excluded: dict[str, str] = field(default_factory=dict)
    abandoned: frozenset[str] = frozenset()
    culprits: set[str] = field(default_factory=set)
    _deaths: dict[str, int] = field(default_factory=dict)

    def responsible(self, devices: Iterable[str], busy: Iterable[str]) -> list[str]:
        """Return which of `devices` may have ended their common process.

        Those known to have; else the ones that were working for the job (`busy`), any of which
        it may have been.
        """
        lost = set(devices)
        return sorted(self.culprits & lost or lost.intersection(busy))

    def record_death(self, devices: Iterable[str], reason: str) -> None:
        """Count a death that `devices` may have caused; exclude them after three."""
        for device in devices:
            self._deaths[device] = self._deaths.get(device, 0) + 1
            if self._deaths[device] >= MAX_FAILURES:
                self.excluded[device] = f"its process died {MAX_FAILURES} times: {reason}"

    def remaining(self, devices: Iterable[str]) -> tuple[str, ...]:
        """Return those of `devices` that the job may use."""
        return tuple(device for device in devices if device not in self.excluded)

    def blameless(self, devices: Iterable[str]) -> list[str]:
        """Return those of `devices` that have caused no death."""
        return [device for device in devices if device not in self._deaths]

    def excludes_all(self, devices: Iterable[str]) -> bool:
        """Return whether none of `devices` can work for the job again."""
        return all(d in self.excluded or d in self.abandoned for d in devices)

    def error(self) -> JobFailed:
        """Return the error of a job that may use no device any more."""
        return JobFailed(f"it failed on every device that it may use: {grouped(self.excluded)}")


def grouped(reasons: Mapping[str, str]) -> str:
    """Format reasons by device on one line, each reason once."""
    devices: dict[str, list[str]] = {}
    for device, reason in reasons.items():
        devices.setdefault(reason, []).append(device)
    return "; ".join(f"{names(members)}: {reason}" for reason, members in devices.items())


def names(devices: Iterable[str]) -> str:
    """Format the names of devices, a few of many."""
    return ", ".join(label for label, _ in grouped_rows(list(devices), str, MAX_GROUP_ROWS))
