"""State that one engine keeps between jobs for planning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hetsched.device import DeviceInfo, kernel_chunk
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.failures import Failures
from hetsched.engine.planning.plans import Plans
from hetsched.engine.planning.variants import Variants
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.records import Assignment
from hetsched.store.model_store import ModelStore

MAX_KERNELS = 8
"""Kernels remembered per device: fewer than the 16 that a device caches, so none is evicted."""


class MemoryLimits:
    """Memory limits, bytes, of devices that had less memory than they reported."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}

    def get(self, device: str) -> int | None:
        """Return the limit of `device`; None: its reported memory."""
        return self._limits.get(device)

    def lower(self, device: str, failed_bytes: int) -> None:
        """Halve the limit of `device`, which couldn't reserve `failed_bytes`."""
        self._limits[device] = max(1, failed_bytes // 2)

    def raise_after_success(self, devices: Iterable[str]) -> None:
        """Double the limits of these devices: memory may be free again."""
        for device in devices:
            if device in self._limits:
                self._limits[device] *= 2


class WarmKernels:
    """Kernels cached in device processes, the most recent last: preparing these is quick.

    And the libraries that these processes have run: the first job with one is slower.
    """

    def __init__(self) -> None:
        self._kernels: dict[str, list[str]] = {}
        self._libraries: dict[str, set[tuple[str, str]]] = {}

    def is_first_run(self, job: ResolvedJob, assignment: Assignment) -> bool:
        """Return whether the device's process hasn't computed with this variant yet."""
        used = self._libraries.get(assignment.device, ())
        return (job.reference, assignment.variant) not in used

    def record_run(self, job: ResolvedJob, assignment: Assignment) -> None:
        """Record that the device's process has computed with its variants."""
        used = self._libraries.setdefault(assignment.device, set())
        used.update((job.reference, variant) for variant in assignment.variants)

    def contains_all(self, job: ResolvedJob, assignments: Iterable[Assignment]) -> bool:
        """Return whether each of these devices has prepared its kernel before."""
        return all(
            key in self._kernels.get(assignment.device, ())
            for assignment in assignments
            for key in _kernel_keys(job, assignment)
        )

    def add(self, job: ResolvedJob, assignments: Iterable[Assignment]) -> None:
        """Record the kernels that these devices have prepared."""
        for assignment in assignments:
            kernels = self._kernels.setdefault(assignment.device, [])
            for key in _kernel_keys(job, assignment):
                if key in kernels:
                    kernels.remove(key)
                kernels.append(key)
            del kernels[:-MAX_KERNELS]

    def forget(self, devices: Iterable[str]) -> None:
        """Drop the kernels of devices whose process has ended."""
        for device in devices:
            self._kernels.pop(device, None)
            self._libraries.pop(device, None)


@dataclass
class PlanningState:
    """Models, variants, memory limits and the plans of repeated jobs.

    The `record_` methods also drop all plans, whose assumptions no longer hold.

    Attributes
    ----------
    plan_cache : PlanCache
        The engine's. Only for the planner's thread.
    speed_changes : dict
        Device -> change of its speed, for the notes of the next job.
    machine : callable
        Returns all devices of the machine, which may slow down those of a job.
    """

    store: ModelStore
    failures: Failures = field(default_factory=Failures)
    variants: Variants = field(init=False)
    kernels: WarmKernels = field(default_factory=WarmKernels)
    memory_limits: MemoryLimits = field(default_factory=MemoryLimits)
    plan_cache: PlanCache = field(default_factory=PlanCache)
    plans: Plans = field(init=False)
    speed_changes: dict[str, str] = field(default_factory=dict)
    machine: Callable[[], Sequence[DeviceInfo]] = tuple

    def __post_init__(self) -> None:
        self.plans = Plans(self.plan_cache)
        self.variants = Variants(self.failures)

    def record_kernels(
        self,
        job: ResolvedJob,
        assignments: Iterable[Assignment],
        infos: Mapping[str, DeviceInfo],
        failed_variants: Collection[str] = (),
    ) -> None:
        """Record that these devices have prepared their kernels, but for `failed_variants`."""
        self.kernels.add(job, assignments)
        for assignment in assignments:
            for variant in set(assignment.variants).difference(failed_variants):
                self.variants.succeed(job, infos[assignment.device], variant)

    def exclude_variant(
        self, job: ResolvedJob, info: DeviceInfo, variant: str, reason: str
    ) -> None:
        """Exclude `variant`, which couldn't be prepared on `info`."""
        self.variants.exclude(job, info, variant, reason)
        self.plans.clear()

    def record_out_of_memory(self, device: str, failed_bytes: int) -> None:
        """Lower the limit of `device`, which couldn't reserve `failed_bytes`."""
        self.memory_limits.lower(device, failed_bytes)
        self.plans.clear()

    def record_speed_change(self, device: str, change: str) -> None:
        """Record a change of speed of `device`, so that shares are computed again."""
        self.speed_changes[device] = change
        self.plans.clear()


def _kernel_keys(job: ResolvedJob, assignment: Assignment) -> list[str]:
    """Return the inputs of each kernel as a key; some libraries plan for the largest chunk."""
    candidate, chunk = assignment.candidate, assignment.max_chunk
    if candidate is not None and not candidate.info.link:
        chunk = kernel_chunk(chunk)
    return [
        f"{job.reference} {job.encoded_params!r} {variant} {chunk}"
        for variant in assignment.variants
    ]
