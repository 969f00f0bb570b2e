"""Installed and working variants of workloads, by kind of device."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence

from hetsched.device import DeviceInfo
from hetsched.engine.admission.declare import declared_variants
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.failures import Failures, VariantKey
from hetsched.workload import Variant


class Variants:
    """Variants by workload. Installed ones are detected once, because that takes milliseconds.

    Parameters
    ----------
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(self, failures: Failures, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures = failures
        self._clock = clock
        self._installed: dict[tuple[str, str], Sequence[Variant]] = {}
        """(workload reference, kind of variant) -> variants."""

    def usable(self, job: ResolvedJob, info: DeviceInfo) -> list[Variant]:
        """Return the variants that `info` can run, the likely fastest first."""
        return [
            variant
            for variant in self._find_installed(job, info.variant_kind)
            if (variant.threaded or not info.members)
            and not self._reason_against(job, info, variant.name)
        ]

    def reasons(self, job: ResolvedJob, info: DeviceInfo) -> list[str]:
        """Return why variants aren't used for `job` on `info` at present."""
        installed = self._find_installed(job, info.variant_kind)
        return [r for v in installed if (r := self._reason_against(job, info, v.name))]

    def exclude(self, job: ResolvedJob, info: DeviceInfo, variant: str, reason: str) -> None:
        """Exclude a variant that couldn't be prepared on `info` from all devices like it."""
        key = _variant_key(job, info, variant)
        self._failures.fail_variant(key, _digest(job), reason, self._clock())

    def succeed(self, job: ResolvedJob, info: DeviceInfo, variant: str) -> None:
        """Record that a variant was prepared on `info`: it isn't broken for all jobs."""
        if not self._failures.is_empty:
            self._failures.succeed(_variant_key(job, info, variant), _digest(job))

    def _reason_against(self, job: ResolvedJob, info: DeviceInfo, variant: str) -> str:
        if self._failures.is_empty:
            return ""
        key = _variant_key(job, info, variant)
        return self._failures.reason_against_variant(key, _digest(job), self._clock())

    def _find_installed(self, job: ResolvedJob, kind: str) -> Sequence[Variant]:
        key = (job.reference, kind)
        if key not in self._installed:
            self._installed[key] = declared_variants(job.workload, kind)
        return self._installed[key]


def _variant_key(job: ResolvedJob, info: DeviceInfo, variant: str) -> VariantKey:
    """Return the key shared by devices on which a variant fails alike."""
    kind = f"{info.variant_kind} team" if info.members else info.variant_kind
    return kind, job.reference, variant


def _digest(job: ResolvedJob) -> str:
    return hashlib.blake2b(job.encoded_params, digest_size=16).hexdigest()
