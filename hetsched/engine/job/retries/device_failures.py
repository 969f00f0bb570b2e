"""The failures of devices during one job, and the devices that it no longer uses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hetsched.engine.failures import MAX_FAILURES
from hetsched.errors import JobFailed
from hetsched.text import MAX_GROUP_ROWS, grouped_rows

MAX_DEATHS = 20
"""Deaths during one job after which it doesn't use the devices again, even if it gets on: at half
a second each, they would take too long. Arbitrary."""


@dataclass
class DeviceFailures:
    """What a job knows about its devices.

    Attributes
    ----------
    excluded : dict
        Device that the job no longer uses -> why.
    abandoned : frozenset of str
        Devices whose process won't restart.
    is_ambiguous : bool
        Several devices may have caused the last death. When their process has started again they
        take up work one after the other, so that the next death has one cause.
    culprits : set of str
        Devices that have missed a deadline or reported a fault: their process is about to end.
    overdue : set of str
        Those of them that have missed a deadline in the code of the workload.
    without_variant : set of str
        Devices on which a variant couldn't be prepared.
    """

    excluded: dict[str, str] = field(default_factory=dict)
    abandoned: frozenset[str] = frozenset()
    culprits: set[str] = field(default_factory=set)
    overdue: set[str] = field(default_factory=set)
    without_variant: set[str] = field(default_factory=set)
    is_ambiguous: bool = False
    _deaths: int = 0
    _counts: dict[str, float] = field(default_factory=dict)
    _finished: dict[str, int] = field(default_factory=dict)
    """Device that may have caused a death -> chunks that it had finished then."""

    def responsible(self, devices: Iterable[str], busy: Iterable[str]) -> list[str]:
        """Return which of `devices` may have ended their common process.

        Those known to have; else the ones that were working for the job (`busy`), any of which
        it may have been.
        """
        lost = set(devices)
        return sorted(self.culprits & lost or lost.intersection(busy))

    def record_death(self, finished: Mapping[str, int], reason: str) -> None:
        """Count a death that any of some devices may have caused; exclude a device after three.

        Its count is halved if it has finished chunks since the last one: something else may be
        the cause, and the job gets on.

        Parameters
        ----------
        finished : mapping
            Device -> number of chunks that it has finished.
        """
        self._deaths += 1
        self.is_ambiguous = len(finished) > 1
        for device, chunks in finished.items():
            count = self._counts.get(device, 0.0)
            self._counts[device] = 1 + (
                count / 2 if self.has_progressed(device, chunks) else count
            )
            self._finished[device] = chunks
            if self._counts[device] >= MAX_FAILURES or self._deaths >= MAX_DEATHS:
                self.excluded[device] = f"its process died {self._deaths} times: {reason}"

    def has_progressed(self, device: str, chunks: int) -> bool:
        """Return whether `device` has finished chunks since it may last have caused a death."""
        return chunks > 0 and chunks != self._finished.get(device)

    def remaining(self, devices: Iterable[str]) -> tuple[str, ...]:
        """Return those of `devices` that the job may use."""
        return tuple(device for device in devices if device not in self.excluded)

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
