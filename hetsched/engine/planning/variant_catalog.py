"""Installed and working variants of workloads, by kind of device."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.health.failure_tally import FailureTally, bar_seconds
from hetsched.workload import Variant

BROKEN_AFTER = 3
"""Jobs with different parameters for which a variant can't be prepared, after which it is taken
to be broken for all. Arbitrary."""
MAX_FAILURES = 1000
"""Failures that are remembered; the oldest are forgotten. Arbitrary."""

VariantKey = tuple[str, str, str]
"""(scope, workload reference, variant)."""


@dataclass
class ParamsFailure:
    """A variant that couldn't be prepared for some parameters. `barred_until`: seconds."""

    reason: str = ""
    barred_until: float = -math.inf
    times: int = 0


class VariantCatalog:
    """Variants by workload. Installed ones are detected once, because that takes milliseconds.

    One that can't be prepared isn't used for jobs with the same parameters, nor for others of its
    workload after three failures; it is tried again after 1, 2, 4, ... minutes.

    Parameters
    ----------
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._installed: dict[tuple[str, str], Sequence[Variant]] = {}
        """(workload reference, kind of variant) -> variants."""
        self._by_params: dict[tuple[VariantKey, bytes], ParamsFailure] = {}
        """(variant, digest of the parameters) -> its failures."""
        self._by_variant: dict[VariantKey, FailureTally] = {}

    def usable(self, job: ResolvedJob, info: DeviceInfo) -> list[Variant]:
        """Return the variants that `info` can run, the likely fastest first."""
        return [
            variant
            for variant in self._find_installed(job, info.variant_kind)
            if (variant.threaded or not info.members)
            and not self.reason_against(job, info, variant.name)
        ]

    def reason_against(self, job: ResolvedJob, info: DeviceInfo, variant: str) -> str:
        """Return why `variant` isn't used for `job` on `info` at present; "" if it may be."""
        if not self._by_variant:
            return ""
        now, key = self._clock(), _variant_key(job, info, variant)
        tally = self._by_variant.get(key)
        if tally is None:
            return ""
        if tally.is_barred(now):
            return tally.reason
        failure = self._by_params.get((key, _digest(job)))
        return "" if failure is None or failure.barred_until <= now else failure.reason

    def reasons(self, job: ResolvedJob, info: DeviceInfo) -> list[str]:
        """Return why variants aren't used for `job` on `info` at present."""
        installed = self._find_installed(job, info.variant_kind)
        return [r for v in installed if (r := self.reason_against(job, info, v.name))]

    def exclude(self, job: ResolvedJob, info: DeviceInfo, variant: str, reason: str) -> None:
        """Exclude a variant that couldn't be prepared on `info` from all devices like it."""
        now, key, digest = self._clock(), _variant_key(job, info, variant), _digest(job)
        failure = self._by_params.setdefault((key, digest), ParamsFailure())
        failure.reason = reason
        failure.barred_until = now + bar_seconds(failure.times)
        failure.times += 1
        tally = self._by_variant.setdefault(key, FailureTally())
        tally.fail(digest.hex(), reason, now, BROKEN_AFTER)
        while len(self._by_params) > MAX_FAILURES:
            del self._by_params[next(iter(self._by_params))]
        while len(self._by_variant) > MAX_FAILURES:
            del self._by_variant[next(iter(self._by_variant))]

    def succeed(self, job: ResolvedJob, info: DeviceInfo, variant: str) -> None:
        """Record that a variant was prepared on `info`: it isn't broken for all jobs."""
        if self._by_variant:
            key = _variant_key(job, info, variant)
            self._by_params.pop((key, _digest(job)), None)
            if key in self._by_variant:
                self._by_variant[key] = FailureTally()

    def _find_installed(self, job: ResolvedJob, kind: str) -> Sequence[Variant]:
        key = (job.reference, kind)
        if key not in self._installed:
            self._installed[key] = tuple(job.workload.variants(kind))
        return self._installed[key]


def _variant_key(job: ResolvedJob, info: DeviceInfo, variant: str) -> VariantKey:
    return _scope(info), job.reference, variant


def _digest(job: ResolvedJob) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(job.params), digest_size=16).digest()


def _scope(info: DeviceInfo) -> str:
    """Return the key shared by devices on which a variant fails alike."""
    return f"{info.variant_kind} team" if info.members else info.variant_kind
