"""What one job makes of the failures of its devices: which it no longer uses, when it gives up."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.failures import MAX_FAILURES
from hetsched.errors import JobFailed
from hetsched.text import MAX_GROUP_ROWS, grouped_rows

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
"""Attempts at one job besides those after a death of a device process, which are limited by the
number of devices."""
MAX_DEATHS = 20
"""Deaths during one job after which it doesn't use the devices again, even if it gets on: at half
a second each, they would take too long."""


class StartOver(Exception):
    """The attempt ends, and the job is planned again for the devices that remain."""


@dataclass
class JobFailures:
    """The attempts at one job, and what it knows about its devices."""

    job: ResolvedJob
    context: EngineContext
    # Device that the job no longer uses -> why
    excluded: dict[str, str] = field(default_factory=dict)
    abandoned: frozenset[str] = frozenset()  # Devices whose process won't restart
    # Devices that have missed a deadline, which may be the plug-in's fault
    overdue: set[str] = field(default_factory=set)
    # Devices on which a variant couldn't be prepared
    without_variant: set[str] = field(default_factory=set)
    reason: str = ""  # Why the job last started over
    attempts: int = 0
    uncounted: int = 0  # Attempts that aren't the job's fault
    _deaths: int = 0
    _counts: dict[str, float] = field(default_factory=dict)
    # Device -> chunks that it had finished when it last died
    _finished: dict[str, int] = field(default_factory=dict)

    def count_attempt(self) -> None:
        """Begin another attempt. Raises JobFailed if there were too many."""
        self.attempts += 1
        if self.attempts - self.uncounted > MAX_ATTEMPTS:
            raise JobFailed(f"gave up after {self.attempts - 1} attempts: {self.reason}")

    # ---- this job

    def remaining(self, devices: Iterable[str]) -> tuple[str, ...]:
        """Return those of `devices` that the job may use."""
        return tuple(device for device in devices if device not in self.excluded)

    def excludes_all(self, devices: Iterable[str]) -> bool:
        """Return whether none of `devices` can work for the job again."""
        return all(d in self.excluded or d in self.abandoned for d in devices)

    def error(self) -> JobFailed:
        """Return the error of a job that may use no device any more."""
        return JobFailed(f"it failed on every device that it may use: {grouped(self.excluded)}")

    def has_progressed(self, device: str, chunks: int) -> bool:
        """Return whether `device` has finished chunks since it last died."""
        return chunks > 0 and chunks != self._finished.get(device)

    def record_death(self, device: str, chunks: int, reason: str) -> None:
        """Count a death of `device`, which had finished `chunks`; exclude it after three.

        Its count is halved if it has finished chunks since the last one: something else may be
        the cause, and the job gets on.
        """
        self._deaths += 1
        self.uncounted += 1
        has_progressed = self.has_progressed(device, chunks)
        if has_progressed:
            self.context.failures.succeed(device, self.job.kind)
        self.record(device, reason, is_death=device not in self.overdue)
        count = self._counts.get(device, 0.0)
        self._counts[device] = 1 + (count / 2 if has_progressed else count)
        self._finished[device] = chunks
        if self._counts[device] >= MAX_FAILURES or self._deaths >= MAX_DEATHS:
            self.excluded[device] = f"its process died {self._deaths} times: {reason}"

    # ---- the engine's record of all jobs

    def reasons_against(self, devices: Iterable[str]) -> dict[str, str]:
        """Return those of `devices` that may not work for this kind of job -> the reason."""
        failures = self.context.failures
        if failures.is_empty:
            return {}
        now, kind = time.monotonic(), self.job.kind
        reasons = {device: failures.reason_against(device, kind, now) for device in devices}
        return {device: reason for device, reason in reasons.items() if reason}

    def record(self, device: str, reason: str, *, is_death: bool = False) -> None:
        """Count a failure of `device` for this kind of job, which may exclude it.

        `is_death`: its process has ended, and not because of a deadline in the workload's code;
        only these count towards quarantine.
        """
        consequence = self.context.failures.fail_device(
            device,
            self.job.kind,
            reason,
            time.monotonic(),
            is_death=is_death,
            devices=[info.name for info in self.context.fleet.infos],
        )
        if consequence:
            log.warning("%s: %s", device, consequence)
            self.excluded.setdefault(device, consequence)

    def note_successes(self, chunks: Mapping[str, int], failed: str = "") -> None:
        """Note the devices that have worked for this kind of job.

        `chunks`: device -> how many it has finished; `failed`: one that doesn't count.
        """
        for device, count in chunks.items():
            if count and device != failed:
                self.context.failures.note_success(device, self.job.kind)

    def record_success(self, chunks: Mapping[str, int]) -> None:
        """Count a success of each device that has finished chunks since it last failed."""
        for device, count in chunks.items():
            if self.has_progressed(device, count):
                self.context.failures.succeed(device, self.job.kind)


def grouped(reasons: Mapping[str, str]) -> str:
    """Format reasons by device on one line, each reason once."""
    devices: dict[str, list[str]] = {}
    for device, reason in reasons.items():
        devices.setdefault(reason, []).append(device)
    return "; ".join(f"{names(members)}: {reason}" for reason, members in devices.items())


def names(devices: Iterable[str]) -> str:
    """Format the names of devices, a few of many."""
    return ", ".join(label for label, _ in grouped_rows(list(devices), str, MAX_GROUP_ROWS))
