"""What one engine keeps between jobs for planning."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hetsched.bounded_cache import BoundedCache
from hetsched.device import DeviceInfo, kernel_chunk
from hetsched.engine.admission.resolved_job import ResolvedJob, declared_variants, plug_in
from hetsched.engine.failures import Failures, VariantKey
from hetsched.paths import cache_dir
from hetsched.planner.planner import Planner
from hetsched.planner.records import Assignment, JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.store.model_store import ModelStore
from hetsched.workload import Variant

LEARNT_ONE_BY_ONE = 8
"""Runs of a kind of job after which its models are good enough to sample."""
SAMPLED = 16
"""One of so many further runs is learnt from: 1.3 ms of processor time, 0.1 ms a run."""
MAX_ERROR = 0.25
"""Relative error of a predicted time that is news if the next run shows it, too. Noise between
runs of the same speed is smaller on most machines."""
MAX_KINDS = 256
"""Kinds of job that are known; the one that wasn't used for longest is forgotten first."""
MAX_BYTES = 32 << 20
"""Of all their plans, estimated."""

JobKind = tuple[str, bytes, str, tuple[str, ...], int | None, str]
"""Workload, params, storage, devices, memory limit, schedule."""


def job_kind(job: ResolvedJob, devices: Iterable[str]) -> JobKind:
    names, limit = tuple(devices), job.memory_limit
    return job.reference, job.encoded_params, job.storage, names, limit, job.schedule


@dataclass
class _Known:
    """What is known of one kind of job."""

    planner: Planner | None = None
    plan: JobPlan | None = None
    usual: JobPlan | None = None  # Its last plan that isn't a trial
    runs: int = 0
    unlearnt: int = 0  # Runs since the last one after which a plan was due
    was_off: bool = False

    def count(self, plan: JobPlan, seconds: float) -> bool:
        """Count a run of `plan`; return whether to learn from it and make another plan."""
        is_off = plan.prediction_error(seconds) > MAX_ERROR
        is_due = self.runs < LEARNT_ONE_BY_ONE or (is_off and self.was_off)
        self.runs += 1
        self.unlearnt += 1
        if is_due or self.unlearnt >= SAMPLED:
            self.unlearnt, self.was_off = 0, False
            if is_off or plan.trial:
                self.plan = None  # the next job waits for a better one
            return True
        self.was_off = is_off
        if plan.trial:
            self.plan = self.usual  # None: the next job waits for one
        return bool(plan.trial)


class Plans:
    """The plans of all kinds of job. Thread-safe: the planner's thread makes them."""

    def __init__(self, plan_cache: PlanCache) -> None:
        self._plan_cache = plan_cache
        self._kinds: BoundedCache[JobKind, _Known] = BoundedCache(
            max_entries=MAX_KINDS, max_bytes=MAX_BYTES
        )
        self._lock = threading.Lock()
        self.generation = 0  # How often all plans were dropped

    def planner(self, kind: JobKind, load: int) -> Planner:
        with self._lock:
            known = self._kinds.get_or_compute(kind, _Known)
            if known.planner is None:
                known.planner = Planner(load, self._plan_cache)
                self._kinds.put(kind, known, len(kind[1]))
            return known.planner

    def runs(self, kind: JobKind) -> int:
        known = self._kinds.peek(kind)
        return 0 if known is None else known.runs

    def get(self, kind: JobKind) -> JobPlan | None:
        """Return the plan that the next job of this kind follows; None: one must be made."""
        with self._lock:
            known = self._kinds.get(kind)
            return None if known is None else known.plan

    def put(self, kind: JobKind, plan: JobPlan, generation: int) -> None:
        """Keep `plan`, unless it may use what has failed since it was begun, in `generation`."""
        with self._lock:
            known = self._kinds.peek(kind)
            if known is not None and generation == self.generation:
                known.plan = plan
                if not plan.trial:
                    known.usual = plan
                # The planner's last plan has the same devices and chunks as the usual one.
                kept = {id(each): each for each in (plan, known.usual) if each is not None}
                nbytes = sum(each.nbytes for each in kept.values())
                self._kinds.put(kind, known, nbytes + len(kind[1]))

    def count_run(self, kind: JobKind, plan: JobPlan, seconds: float) -> bool:
        with self._lock:
            known = self._kinds.get(kind)
            return known is None or known.count(plan, seconds)

    def clear(self) -> None:
        """Drop all plans. Runs stay counted, and planners remember what was tried."""
        with self._lock:
            for kind, known in list(self._kinds.items()):
                known.plan = known.usual = None
                self._kinds.put(kind, known, len(kind[1]))
            self.generation += 1


MAX_KERNELS = 8
"""Kernels remembered per device: fewer than the 16 that a device caches, so none is evicted."""

_KernelKey = tuple[str, bytes, str, int]
"""Workload, params, variant, largest chunk."""


class PlanningState:
    """Models, variants, memory limits, warm kernels and the plans of repeated jobs.

    Methods that record what has failed or changed also drop all plans, which assumed otherwise.
    """

    def __init__(
        self, store: ModelStore, machine: Callable[[], Sequence[DeviceInfo]] = tuple
    ) -> None:
        self.store = store
        self.failures = Failures()
        # Device -> bytes, of those that had less memory than they reported
        self.memory_limits: dict[str, int] = {}
        self.plan_cache = PlanCache()  # Only for the planner's thread
        self.plans = Plans(self.plan_cache)
        # Returns all devices of the machine, which may slow down those of a job
        self.machine = machine
        # (workload reference, kind) -> its installed variants: finding them takes milliseconds
        self._variants: dict[tuple[str, str], Sequence[Variant]] = {}
        # Device -> kernels cached in its process, the most recent last: preparing them is quick
        self._kernels: dict[str, list[_KernelKey]] = {}

    # ---- variants

    def usable_variants(self, job: ResolvedJob, info: DeviceInfo) -> list[Variant]:
        """Return the variants that `info` can run, the likely fastest first."""
        return [
            variant
            for variant, reason in self._judged_variants(job, info)
            if not reason and (variant.threaded or not info.members)
        ]

    def ready_variants(self, job: ResolvedJob, info: DeviceInfo) -> list[Variant]:
        """Return the usable variants that compute at once, without long preparations; or all."""
        usable, folder = self.usable_variants(job, info), str(cache_dir())
        with plug_in(job.workload.name, "tuning"):
            tunings = [v.tuning_left(job.params, info.threads, folder) for v in usable]
        ready = [v for v, left in zip(usable, tunings, strict=True) if not left.is_needed]
        return ready or usable

    def reasons_against_variants(self, job: ResolvedJob, info: DeviceInfo) -> list[str]:
        return [reason for _, reason in self._judged_variants(job, info) if reason]

    def _judged_variants(self, job: ResolvedJob, info: DeviceInfo) -> list[tuple[Variant, str]]:
        """Return the installed variants, each with why it isn't used at present, or ""."""
        kind = (job.reference, info.variant_kind)
        if kind not in self._variants:
            self._variants[kind] = declared_variants(job.workload, info.variant_kind)
        params, now = _digest(job), time.monotonic()
        return [
            (v, self.failures.reason_against(_variant_key(job, info, v.name), params, now))
            for v in self._variants[kind]
        ]

    # ---- kernels

    def has_kernels(self, job: ResolvedJob, assignments: Iterable[Assignment]) -> bool:
        return all(
            key in self._kernels.get(assignment.device, ())
            for assignment in assignments
            for key in _kernel_keys(job, assignment)
        )

    def record_kernels(
        self,
        job: ResolvedJob,
        assignments: Iterable[Assignment],
        infos: Mapping[str, DeviceInfo],
        failed_variants: Collection[str] = (),
    ) -> None:
        for assignment in assignments:
            kernels = self._kernels.setdefault(assignment.device, [])
            for key in _kernel_keys(job, assignment):
                if key in kernels:
                    kernels.remove(key)
                kernels.append(key)
            del kernels[:-MAX_KERNELS]
            for variant in set(assignment.variants).difference(failed_variants):
                subject = _variant_key(job, infos[assignment.device], variant)
                self.failures.succeed(subject, _digest(job))

    def forget_kernels(self, device: str) -> None:
        self._kernels.pop(device, None)

    # ---- failures

    def exclude_variant(
        self, job: ResolvedJob, info: DeviceInfo, variant: str, reason: str
    ) -> None:
        """Exclude `variant`, which couldn't be prepared on `info`, from all devices like it."""
        key = _variant_key(job, info, variant)
        self.failures.fail_variant(key, _digest(job), reason, time.monotonic())
        self.plans.clear()

    def record_out_of_memory(self, device: str, failed_bytes: int) -> None:
        """Halve the limit of `device`, which couldn't reserve `failed_bytes`."""
        self.memory_limits[device] = max(1, failed_bytes // 2)
        self.plans.clear()

    def raise_memory_limits(self, infos: Iterable[DeviceInfo]) -> None:
        """Double the limits of these devices after a success, up to what they report."""
        for info in infos:
            limit = self.memory_limits.pop(info.name, None)
            if limit is not None and (info.memory is None or 2 * limit < info.memory):
                self.memory_limits[info.name] = 2 * limit


def _variant_key(job: ResolvedJob, info: DeviceInfo, variant: str) -> VariantKey:
    """Return the key shared by devices on which a variant fails alike."""
    kind = f"{info.variant_kind} team" if info.members else info.variant_kind
    return kind, job.reference, variant


def _digest(job: ResolvedJob) -> str:
    return hashlib.blake2b(job.encoded_params, digest_size=16).hexdigest()


def _kernel_keys(job: ResolvedJob, assignment: Assignment) -> list[_KernelKey]:
    """Return the inputs of each kernel; some libraries plan for the largest chunk."""
    candidate, chunk = assignment.candidate, assignment.max_chunk
    if candidate is not None and not candidate.info.link:
        chunk = kernel_chunk(chunk)
    return [(job.reference, job.encoded_params, variant, chunk) for variant in assignment.variants]
