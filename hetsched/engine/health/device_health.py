"""Failures of devices: which of them may work for which kinds of job. No clock.

A failure is the death of a device's process at work for a job, a missed deadline, or a kernel that
can't be compiled or run. After three for one kind of job, the device takes no more jobs of that
kind; after three deaths of at least two kinds, it is quarantined: it takes no job. It is tried
again after 1, 2, 4, ... minutes. Each success halves the counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from hetsched.engine.health.failure_tally import FailureTally
from hetsched.units import counted, format_seconds

MAX_TALLIES = 1000
"""Maximum pairs of a device and a kind of job; the oldest is forgotten. Arbitrary."""
QUARANTINE_KINDS = 2
"""Kinds of job that must have failed before a device is quarantined."""


class DeviceHealth:
    """The failures of all devices of an engine; `now` in seconds.

    A kind of job is the name of its workload, which messages show, a space, and details.
    """

    def __init__(self) -> None:
        self._by_kind: dict[tuple[str, str], FailureTally] = {}
        """(device, kind of job) -> its failures."""
        self._by_device: dict[str, FailureTally] = {}

    @property
    def is_perfect(self) -> bool:
        """Whether no failure is remembered."""
        return not self._by_device and not self._by_kind

    def fail(
        self, device: str, kind: str, reason: str, now: float, *, is_death: bool = True
    ) -> str:
        """Count a failure; return what follows from it, for the log, or "".

        `is_death`: of the device's process. A kernel that can't be run may be the job's fault, and
        doesn't count towards quarantine.
        """
        tally = self._by_kind.setdefault((device, kind), FailureTally())
        is_excluded = tally.fail(kind, reason, now)
        while len(self._by_kind) > MAX_TALLIES:
            del self._by_kind[next(iter(self._by_kind))]
        overall = self._by_device.setdefault(device, FailureTally()) if is_death else None
        if overall is not None and overall.fail(kind, reason, now, QUARANTINE_KINDS):
            return _quarantine_text(overall, now)
        return _exclusion_text(tally, now) if is_excluded else ""

    def succeed(self, devices: Iterable[str], kind: str) -> None:
        """Halve the counts of `devices`, which have worked for a job."""
        for device in devices:
            tally = self._by_kind.get((device, kind))
            if tally is not None and tally.succeed():
                del self._by_kind[device, kind]
            overall = self._by_device.get(device)
            if overall is not None and overall.succeed():
                del self._by_device[device]

    def reason_against(self, device: str, kind: str, now: float) -> str:
        """Return why `device` may not work for a job of this kind; "" if it may."""
        overall = self._by_device.get(device)
        if overall is not None and overall.is_barred(now):
            return _quarantine_text(overall, now)
        tally = self._by_kind.get((device, kind))
        if tally is not None and tally.is_barred(now):
            return _exclusion_text(tally, now)
        return ""

    def quarantined(self, now: float) -> dict[str, str]:
        """Return device that takes no job at present -> why."""
        return {
            device: _quarantine_text(tally, now)
            for device, tally in self._by_device.items()
            if tally.is_barred(now)
        }

    def restricted(self, now: float) -> dict[str, str]:
        """Return device that takes no jobs of some kinds at present -> why."""
        texts: dict[str, list[str]] = {}
        for (device, _), tally in self._by_kind.items():
            if tally.is_barred(now):
                texts.setdefault(device, []).append(_exclusion_text(tally, now))
        return {device: "; ".join(lines) for device, lines in texts.items()}

    def forget(self) -> None:
        """Give every device another chance."""
        self._by_kind.clear()
        self._by_device.clear()


def _quarantine_text(tally: FailureTally, now: float) -> str:
    kinds = counted(len(tally.kinds), "kind")
    return f"quarantined after failures in {kinds} of jobs {_rest(tally, now)}"


def _exclusion_text(tally: FailureTally, now: float) -> str:
    kind = next(reversed(tally.kinds)).partition(" ")[0]
    return f"takes no jobs of kind {kind} after failures {_rest(tally, now)}"


def _rest(tally: FailureTally, now: float) -> str:
    seconds = format_seconds(max(1.0, round(tally.barred_until - now)))
    return f"(the last: {tally.reason}); it is tried again in {seconds}"
