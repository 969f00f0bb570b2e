"""A job's failures and successes in the engine's record of its devices."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.job.commands import RecordFailure
from hetsched.engine.job.job_record import JobRecord

log = logging.getLogger(__name__)


class FailureLog:
    """Records what happens to the devices of one job."""

    def __init__(self, job: ResolvedJob, context: EngineContext) -> None:
        self._kind = job.kind
        self._context = context
        self._failures = context.failures

    def excluded(self, devices: Iterable[str]) -> dict[str, str]:
        """Return those of `devices` that may not work for this kind of job -> the reason."""
        if self._failures.is_empty:
            return {}
        now = time.monotonic()
        reasons = {d: self._failures.reason_against(d, self._kind, now) for d in devices}
        return {device: reason for device, reason in reasons.items() if reason}

    def record(self, failure: RecordFailure, record: JobRecord) -> str:
        """Count a failure; return why its device may not be used from now on, or ""."""
        if failure.has_progressed:
            self._failures.succeed(failure.device, self._kind)
        for device, times in record.latest.times.items() if record.latest else ():
            if times and device != failure.device:
                self._failures.note_success(device, self._kind)
        consequence = self._failures.fail_device(
            failure.device,
            self._kind,
            failure.reason,
            time.monotonic(),
            is_death=failure.is_death,
            devices=[info.name for info in self._context.fleet.infos],
        )
        if consequence:
            log.warning("%s: %s", failure.device, consequence)
        return consequence

    def record_success(self, record: JobRecord) -> None:
        """Count a success of each device that has finished chunks since it last failed."""
        for device, times in record.latest.times.items() if record.latest else ():
            if record.failures.has_progressed(device, len(times)):
                self._failures.succeed(device, self._kind)
