"""Which devices and variants aren't used after failures: for a kind of job, and for one job.

One rule: a subject that has failed too often for one kind of job is barred from that kind, and one
that has failed in several kinds is barred from all, a variant from all of its workload.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hetsched.bounded_cache import BoundedCache
from hetsched.device import DeviceInfo
from hetsched.errors import JobFailed
from hetsched.text import named_rows
from hetsched.units import counted, format_seconds

log = logging.getLogger(__name__)

MAX_FAILURES = 3
FIRST_BAR_SECONDS = 60.0
"""How long a subject is barred the first time; then twice as long each time."""
MAX_BAR_SECONDS = 86400.0
QUARANTINE_KINDS = 2
MAX_TALLIES = 1000
"""Pairs of a subject and a kind of job; the oldest is forgotten."""
MAX_KINDS = 16
"""Kinds that are counted for one subject; two are enough."""
FORGOTTEN = 0.5
"""A count below this is nothing."""
ALL = ""
"""The kind of a tally of all kinds."""

VariantKey = tuple[str, str, str]
"""(kind of devices, workload reference, variant)."""
Subject = str | VariantKey
"""A device or a variant."""


@dataclass
class _Tally:
    """Failures of one subject, for one kind of job or for all."""

    scope: str
    count: float = 0.0
    kinds: set[str] = field(default_factory=set)
    reason: str = ""
    barred_until: float = -math.inf
    times_barred: int = 0

    def bar(self, now: float, limit: int) -> None:
        seconds = FIRST_BAR_SECONDS * 2.0 ** min(self.times_barred, 64)
        self.barred_until = now + min(MAX_BAR_SECONDS, seconds)
        self.times_barred += 1
        self.count = limit - 1  # when it is tried again, one failure bars it again

    def text(self, now: float) -> str:
        if self.scope == ALL:
            begin = f"quarantined after failures in {counted(len(self.kinds), 'kind')} of jobs"
        else:
            begin = f"takes no jobs of kind {self.scope.partition(' ')[0]} after failures"
        seconds = format_seconds(max(1.0, round(self.barred_until - now)))
        return f"{begin} (the last: {self.reason}); it is tried again in {seconds}"


class Failures:
    """The failures of all devices and variants of an engine; `now` in seconds.

    A kind of job of a device is the name of its workload, a space, and details; that of a variant
    any text for the parameters. Changed on the loop's thread only; others may read.
    """

    def __init__(self) -> None:
        # Of each (subject, kind or ALL) that has failed
        self.tallies: dict[tuple[Subject, str], _Tally] = {}
        # Kind of job -> devices that have worked for it
        self._done: BoundedCache[str, set[str]] = BoundedCache(max_entries=MAX_TALLIES)

    def fail_device(
        self,
        device: str,
        kind: str,
        reason: str,
        now: float,
        *,
        is_death: bool = False,
        devices: Collection[str] = (),
    ) -> str:
        """Count a failure; return what follows from it, for the log, or "".

        `is_death`: the device's process ended or was silent; others may be the job's fault, and
        don't count towards quarantine. `devices`: those of this machine.
        """
        tally = self._count(device, kind, kind, reason)
        is_excluded = tally.count >= MAX_FAILURES
        if is_excluded:
            tally.bar(now, MAX_FAILURES)
        # Of a kind that has run well nowhere else, the plug-in is the likelier cause.
        if is_death and (self._done.peek(kind) or set()) - {device}:
            overall = self._count(device, ALL, kind, reason)
            is_due = overall.count >= MAX_FAILURES and len(overall.kinds) >= QUARANTINE_KINDS
            if is_due and set(devices) - {device} - self.quarantined(now).keys():
                overall.bar(now, MAX_FAILURES)
                return overall.text(now)
        return tally.text(now) if is_excluded else ""

    def fail_variant(self, variant: VariantKey, params: str, reason: str, now: float) -> None:
        self._count(variant, params, params, reason).bar(now, 1)
        overall = self._count(variant, ALL, params, reason)
        if overall.count >= MAX_FAILURES:
            overall.bar(now, MAX_FAILURES)

    def succeed(self, subject: Subject, kind: str) -> None:
        """Halve the counts of a device that has worked for a job, or of a prepared variant."""
        for scope in (subject, kind), (subject, ALL):
            tally = self.tallies.get(scope)
            if tally is not None:
                tally.count /= 2
                if tally.count < FORGOTTEN:
                    del self.tallies[scope]

    def note_success(self, device: str, kind: str) -> None:
        """Note that `device` has worked for a job of this kind, whatever becomes of the job."""
        self._done.get_or_compute(kind, set).add(device)

    def reason_against(self, subject: Subject, kind: str, now: float) -> str:
        """Return why a device, or a variant, isn't used for this kind; "" if it may be."""
        for scope in ALL, kind:
            tally = self.tallies.get((subject, scope))
            if tally is not None and now < tally.barred_until:
                return tally.text(now) if isinstance(subject, str) else tally.reason
        return ""

    def quarantined(self, now: float) -> dict[str, str]:
        """Return device that takes no job at present -> why."""
        barred = self._barred_devices(now)
        return {device: tally.text(now) for device, tally in barred if tally.scope == ALL}

    def restricted(self, now: float) -> dict[str, str]:
        """Return device that takes no jobs of some kinds at present -> why."""
        texts: dict[str, list[str]] = {}
        for device, tally in self._barred_devices(now):
            if tally.scope != ALL:
                texts.setdefault(device, []).append(tally.text(now))
        return {device: "; ".join(lines) for device, lines in texts.items()}

    def _count(self, subject: Subject, scope: str, kind: str, reason: str) -> _Tally:
        tally = self.tallies.setdefault((subject, scope), _Tally(scope))
        tally.count += 1
        tally.reason = reason
        if len(tally.kinds) < MAX_KINDS:
            tally.kinds.add(kind)
        if len(self.tallies) > MAX_TALLIES:
            del self.tallies[next(iter(self.tallies))]
        return tally

    def _barred_devices(self, now: float) -> list[tuple[str, _Tally]]:
        return [
            (subject, tally)
            for (subject, _), tally in self.tallies.items()
            if isinstance(subject, str) and now < tally.barred_until
        ]


# ---- one job

MAX_ATTEMPTS = 5
"""Attempts at one job besides those after a death of a device process, which are limited by the
number of devices."""
MAX_DEATHS = 20
"""Deaths during one job after which it doesn't use the devices again, even if it gets on: at half
a second each, they would take too long."""


@dataclass
class JobFailures:
    table: Failures
    kind: str
    machine: Callable[[], Collection[DeviceInfo]]
    """All devices: the last one is never quarantined."""
    # Device that the job no longer uses -> why
    excluded: dict[str, str] = field(default_factory=dict)
    # Devices that have missed a deadline, which may be the plug-in's fault
    overdue: set[str] = field(default_factory=set)
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

    def remaining(self, devices: Iterable[str]) -> tuple[str, ...]:
        return tuple([device for device in devices if device not in self.excluded])

    def error(self) -> JobFailed:
        devices: dict[str, list[str]] = {}
        for device, reason in self.excluded.items():
            devices.setdefault(reason, []).append(device)
        reasons = [f"{named_rows(members)}: {reason}" for reason, members in devices.items()]
        return JobFailed(f"it failed on every device that it may use: {'; '.join(reasons)}")

    def record_death(self, device: str, chunks: int, reason: str) -> None:
        """Count a death; half of it if it has finished more `chunks`. Excludes after three."""
        self._deaths += 1
        self.uncounted += 1
        has_progressed = chunks > 0 and chunks != self._finished.get(device)
        if has_progressed:
            self.table.note_success(device, self.kind)
            self.table.succeed(device, self.kind)
        self.record(device, reason, is_death=device not in self.overdue)
        count = self._counts.get(device, 0.0)
        self._counts[device] = 1 + (count / 2 if has_progressed else count)
        self._finished[device] = chunks
        if self._counts[device] >= MAX_FAILURES or self._deaths >= MAX_DEATHS:
            self.excluded[device] = f"its process died {self._deaths} times: {reason}"

    def reasons_against(self, devices: Iterable[str]) -> dict[str, str]:
        if not self.table.tallies:
            return {}
        now = time.monotonic()
        reasons = {d: self.table.reason_against(d, self.kind, now) for d in devices}
        return {device: reason for device, reason in reasons.items() if reason}

    def record(self, device: str, reason: str, *, is_death: bool = False) -> None:
        consequence = self.table.fail_device(
            device,
            self.kind,
            reason,
            time.monotonic(),
            is_death=is_death,
            devices=[info.name for info in self.machine()],
        )
        if consequence:
            log.warning("%s: %s", device, consequence)
            self.excluded.setdefault(device, consequence)

    def note_successes(self, chunks: Mapping[str, int], failed: str = "") -> None:
        """Note the devices, but `failed`, that have finished some of these numbers of chunks."""
        for device, count in chunks.items():
            if count and device != failed:
                self.table.note_success(device, self.kind)

    def record_success(self, chunks: Mapping[str, int]) -> None:
        """Count a success of each device that has finished chunks since it last died."""
        self.note_successes(chunks)
        for device, count in chunks.items():
            if count and count != self._finished.get(device):
                self.table.succeed(device, self.kind)
