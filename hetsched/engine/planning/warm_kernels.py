"""The kernels that device processes keep: preparing one of them again is quick."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.planner.records import Assignment

MAX_KERNELS = 8
"""Of each device. A device keeps 16, so these are surely among them."""


class WarmKernels:
    """The last kernels of each device, the most recent last."""

    def __init__(self) -> None:
        self._by_device: dict[str, list[str]] = {}

    def contains_all(self, job: ResolvedJob, assignments: Iterable[Assignment]) -> bool:
        """Return whether each of these devices has made its kernel before."""
        return all(
            _kernel_key(job, assignment) in self._by_device.get(assignment.device, ())
            for assignment in assignments
        )

    def add(self, job: ResolvedJob, assignments: Iterable[Assignment]) -> None:
        """Record the kernels that these devices have made."""
        for assignment in assignments:
            kernels = self._by_device.setdefault(assignment.device, [])
            key = _kernel_key(job, assignment)
            if key in kernels:
                kernels.remove(key)
            kernels.append(key)
            del kernels[:-MAX_KERNELS]

    def forget(self, devices: Iterable[str]) -> None:
        """Drop the kernels of devices whose process has ended."""
        for device in devices:
            self._by_device.pop(device, None)


def _kernel_key(job: ResolvedJob, assignment: Assignment) -> str:
    """Return what a kernel depends on; some libraries plan for the largest chunk, too."""
    params = msgspec.json.encode(job.params)
    return f"{job.reference} {params!r} {assignment.variant} {assignment.max_chunk}"
