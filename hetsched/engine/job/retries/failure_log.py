"""A job's failures and successes in the engine's record of its devices' health."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.health.device_health import DeviceHealth
from hetsched.engine.job.commands import RecordFailure
from hetsched.engine.job.job_record import JobRecord

log = logging.getLogger(__name__)


class FailureLog:
    """Records what happens to the devices of one job."""

    def __init__(self, job: ResolvedJob, health: DeviceHealth) -> None:
        self._job = job
        self._health = health
        self._kind_text = ""

    def excluded(self, devices: Iterable[str]) -> dict[str, str]:
        """Return those of `devices` that may not work for this kind of job -> the reason."""
        if self._health.is_perfect:
            return {}
        now, kind = time.monotonic(), self._kind()
        reasons = {device: self._health.reason_against(device, kind, now) for device in devices}
        return {device: reason for device, reason in reasons.items() if reason}

    def record(self, failure: RecordFailure) -> str:
        """Count a failure; return why its device may not be used from now on, or ""."""
        now, kind = time.monotonic(), self._kind()
        if failure.has_progressed:
            self._health.succeed([failure.device], kind)
        consequence = self._health.fail(
            failure.device, kind, failure.reason, now, is_death=failure.is_death
        )
        if consequence:
            log.warning("%s: %s", failure.device, consequence)
        return consequence

    def record_success(self, record: JobRecord) -> None:
        """Count a success of each device that has finished chunks since it last failed."""
        if record.latest is None or self._health.is_perfect:
            return
        devices = [
            device
            for device, times in record.latest.times.items()
            if record.failures.has_progressed(device, len(times))
        ]
        self._health.succeed(devices, self._kind())

    def _kind(self) -> str:
        """Return the kind of this job: its workload, and what determines its speed.

        Computed when a device has failed only, since it calls the plug-in.
        """
        if not self._kind_text:
            job = self._job
            try:
                speed_key = job.workload.speed_key(job.params)
            except Exception:
                log.warning("%s: speed_key raised", job.workload.name, exc_info=True)
                speed_key = ""
            self._kind_text = f"{job.workload.name} {speed_key}".strip()
        return self._kind_text
