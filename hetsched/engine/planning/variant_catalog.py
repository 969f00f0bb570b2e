"""Installed and working variants of workloads, by kind of device."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.workload import Variant


class VariantCatalog:
    """Variants by workload. Installed ones are detected once, because that takes milliseconds."""

    def __init__(self) -> None:
        self._installed: dict[tuple[str, str], Sequence[Variant]] = {}
        """(workload reference, kind of variant) -> variants."""
        self._failed: set[tuple[str, str, str]] = set()
        """(scope, workload, variant)."""

    def usable(self, job: ResolvedJob, info: DeviceInfo) -> list[Variant]:
        """Return the variants that `info` can run, the likely fastest first."""
        return [
            variant
            for variant in self._find_installed(job, info.variant_kind)
            if (_scope(info), job.workload.name, variant.name) not in self._failed
            and (variant.threaded or not info.members)
        ]

    def exclude(self, job: ResolvedJob, info: DeviceInfo, variant: str) -> None:
        """Exclude a variant that couldn't be prepared on `info` from all devices like it."""
        self._failed.add((_scope(info), job.workload.name, variant))

    def _find_installed(self, job: ResolvedJob, kind: str) -> Sequence[Variant]:
        key = (job.reference, kind)
        if key not in self._installed:
            self._installed[key] = tuple(job.workload.variants(kind))
        return self._installed[key]


def _scope(info: DeviceInfo) -> str:
    """Return the key shared by devices on which a variant fails alike."""
    return f"{info.variant_kind} team" if info.members else info.variant_kind
