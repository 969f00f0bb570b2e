"""Plans jobs from models.db, for a run or for iterations, and learns from runs.

Functions run in the planner's thread; plans also for `hetsched plan`.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched import errors
from hetsched.bounded_cache import BoundedCache
from hetsched.device import DEVICE_KINDS, Chunk, DeviceInfo, kernel_chunk
from hetsched.devices.accelerator.rows import piece_overhead
from hetsched.engine.admission.resolved_job import (
    ResolvedJob,
    declared_demand,
    declared_variants,
    plug_in,
)
from hetsched.engine.failures import Failures, VariantKey
from hetsched.job import JobSpec
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.models.races import NO_RACES, Race
from hetsched.models.samples import CO_RUNNERS, CoRunners, Sample, is_time
from hetsched.models.windows import MIN_CHANGE
from hetsched.partition import iterations
from hetsched.paths import cache_dir
from hetsched.planner.learning import Run, learn
from hetsched.planner.neighbours import co_runners_of, possible_models
from hetsched.planner.planner import Planner
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.planner.variants import choose_variants, pooled_models
from hetsched.plans.device_plan import DevicePlan, evenly
from hetsched.plans.slots import aligned, slot_bytes, slotted
from hetsched.store.model_store import ModelKey, ModelStore, RaceKey
from hetsched.workload import Iterative, Variant

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

MAX_KERNELS = 8
"""Kernels remembered per device: fewer than the 16 that a device caches, so none is evicted."""
MOVE_BYTES_PER_SECOND = 4e9
"""Memory speed of a core that gets rows of another one: the least cost of moving them."""

JobKind = tuple[str, bytes, str, tuple[str, ...], int | None, str]
"""Workload, params, storage, devices, memory limit, schedule."""
_KernelKey = tuple[str, bytes, str, int]
"""Workload, params, variant, largest chunk."""
Lesson = tuple[str, str, CoRunners]
"""Device, variant and co-runners, of which samples are."""


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


# ---- plans


def next_plan(
    job: ResolvedJob,
    infos: Sequence[DeviceInfo],
    state: PlanningState,
    unstarted: Collection[str] = (),
) -> JobPlan:
    """Return shares, chunks and variants for the next run; `unstarted`: without a process yet."""
    if job.measure:
        return _equal_plan(job, infos, state)
    kind = job_kind(job, (info.name for info in infos))
    planner = state.plans.planner(kind, job.load)
    candidates = find_candidates(job, infos, state, unstarted)
    if planner.is_new:
        candidates = with_idle_runs(job, candidates, state)
    return planner.next(candidates, state.machine(), state.plans.runs(kind))


# ---- measurements


def _equal_plan(job: ResolvedJob, infos: Sequence[DeviceInfo], state: PlanningState) -> JobPlan:
    """Give every device to measure an equal share, in as few chunks as fit in memory."""
    variants, available = job.measure, {info.name: info for info in infos}
    if job.load % len(variants):
        raise errors.UsageError(
            f"{job.load} units can't be divided equally among {len(variants)} devices"
        )
    for info in infos:
        if info.name in variants and not variants.keys().isdisjoint(info.members):
            raise errors.UsageError(f"{info.name} can't be measured together with its own cores")
    share, chunk_ids = job.load // len(variants), itertools.count()
    assignments = []
    for number, (device, variant) in enumerate(variants.items()):
        if device not in available:
            raise errors.Unavailable(f"{device} can't be measured: it is no longer available")
        info = available[device]
        if variant not in [each.name for each in state.usable_variants(job, info)]:
            raise errors.Unavailable(
                f"{device} can't be measured with {variant}: it doesn't work there"
            )
        demand = device_demand(job, info, state)
        assignments.append(
            _equal_assignment(info, demand, variant, share, number * share, chunk_ids)
        )
    return JobPlan(tuple(assignments), None, (f"measured: {share} units on each device",))


def _equal_assignment(
    info: DeviceInfo,
    demand: MemoryDemand,
    variant: str,
    share: int,
    first: int,
    chunk_ids: itertools.count[int],
) -> Assignment:
    max_chunk = slotted(demand).max_chunk(share) if info.link else share
    sizes = evenly(share, math.ceil(share / max_chunk))
    starts = itertools.accumulate(sizes, initial=first)
    return Assignment(
        device=info.name,
        variant=variant,
        plan=DevicePlan(tuple((size,) for size in sizes)),
        chunks=tuple(
            Chunk(next(chunk_ids), start, size, barrier=start > first, last=True)
            for start, size in zip(starts, sizes, strict=False)
        ),
        max_chunk=max(sizes),
        slots=1,
        slot_memory=slot_bytes(demand, max(sizes)) if info.link else 0,
        window=2,
        predicted_seconds=None,
    )


# ---- candidates


def find_candidates(
    job: ResolvedJob,
    infos: Sequence[DeviceInfo],
    state: PlanningState,
    unstarted: Collection[str] = (),
) -> list[Candidate]:
    """Return a candidate for each device with a working variant. Raises Unavailable."""
    beside = co_runners_of(infos, state.machine())
    candidates = [
        replace(candidate.beside(beside[info.name]), needs_start=info.name in unstarted)
        for info in infos
        if (candidate := _candidate(job, info, state)) is not None
    ]
    if not candidates:
        if infos and all(info.members for info in infos):
            teams = ", ".join(info.name for info in infos)
            raise errors.Unavailable(
                f"{job.workload.name} has no multithreaded variant for {teams}; choose cpu, the"
                " single cores"
            )
        kinds = ", ".join(sorted({info.kind for info in infos}))
        failures = dict.fromkeys(
            r for info in infos for r in state.reasons_against_variants(job, info)
        )
        able = [
            kind.group
            for kind in DEVICE_KINDS.values()
            if not (failures or kind.is_modelled)
            and declared_variants(job.workload, kind.variant_kind)
        ]
        hints = [*failures, *([f"these can run it: {', '.join(able)}"] if able else [])]
        raise errors.Unavailable(
            "; ".join([f"no working variant of {job.workload.name} for {kinds}", *hints])
        )
    return candidates


def with_idle_runs(
    job: ResolvedJob, candidates: Sequence[Candidate], state: PlanningState
) -> list[Candidate]:
    """Return the candidates with estimates of the runs since their last one, and last real one."""
    keys = {c.info.name: _model_keys(job, c.info, state) for c in candidates}
    busiest = max(itertools.chain(*keys.values()), key=state.store.runs, default=None)
    if busiest is None:  # what they could run has failed meanwhile
        return list(candidates)
    runs, known = state.store.runs(busiest), state.store.shares(busiest)

    def runs_since(at: float) -> tuple[int, int]:
        least = runs + 1 - min((share.run for share in known if share.at > at), default=runs + 1)
        return least, runs - max((share.run for share in known if share.at <= at), default=0)

    idle = []
    for candidate in candidates:
        own = [share for key in keys[candidate.info.name] for share in state.store.shares(key)]
        least, most = runs_since(max((share.at for share in own), default=0.0))
        _, slow = runs_since(max((share.at for share in own if share.units > 1), default=0.0))
        seen = round(math.sqrt(least * most))
        last = max(own, key=lambda share: share.at, default=None)
        before = [
            share.seconds
            for share in own
            if last is not None and share != last and share.units == last.units
        ]
        if last is not None and before and last.seconds * MIN_CHANGE < statistics.median(before):
            seen = max(seen, slow)  # it was faster than before: look again
        idle.append(replace(candidate, idle_runs=seen, slow_runs=max(seen, slow)))
    return idle


def computed_seconds(candidates: Sequence[Candidate], load: int) -> float:
    """Return about how long the learnt runs have computed, if they had equal shares."""
    share = load / len(candidates)
    return max(
        sum(
            candidate.run_counts[name] * float(model.total.time(share))
            for name, model in candidate.models.items()
            if model is not None
        )
        for candidate in candidates
    )


def model_key(
    job: ResolvedJob, info: DeviceInfo, variant: Variant, co_runners: CoRunners = "all"
) -> ModelKey:
    return ModelKey(
        workload=job.workload.name,
        speed_key=job.speed_key,
        variant=variant.name,
        version=variant.version,
        device=f"{info.name} {info.identity}",
        storage=job.storage,
        co_runners=co_runners,
    )


def _model_keys(job: ResolvedJob, info: DeviceInfo, state: PlanningState) -> list[ModelKey]:
    variants = state.ready_variants(job, info)
    return [model_key(job, info, variant, beside) for beside in CO_RUNNERS for variant in variants]


def device_demand(job: ResolvedJob, info: DeviceInfo, state: PlanningState) -> MemoryDemand:
    """Return the demand of `job` on `info` with its lowest limit, or no limit without a link."""
    demand = declared_demand(job.workload, job.params, info.kind)
    known = (info.memory, job.memory_limit, state.memory_limits.get(info.name))
    limits = [limit for limit in known if info.link and limit is not None]
    return replace(demand, limit=min(limits, default=None))


def _candidate(job: ResolvedJob, info: DeviceInfo, state: PlanningState) -> Candidate | None:
    variants = state.ready_variants(job, info)
    if not variants:
        return None
    names = [variant.name for variant in variants]
    keys = _model_keys(job, info, state)
    models_beside: dict[CoRunners, dict[str, DeviceModel]] = {}
    runs_beside: dict[CoRunners, dict[str, int]] = {}
    for key, model in zip(keys, state.store.load_many(keys, info.link), strict=True):
        runs_beside.setdefault(key.co_runners, {})[key.variant] = state.store.runs(key)
        if model is not None:
            models_beside.setdefault(key.co_runners, {})[key.variant] = model
    races = NO_RACES
    if info.is_core and len(variants) > 1:
        labels = {race_label(variant): variant.name for variant in variants}
        races = state.store.races(keys[0].race_key).renamed(labels)
    return Candidate(
        info=info,
        demand=device_demand(job, info, state),
        models=dict.fromkeys(names),
        run_counts={name: sum(counts[name] for counts in runs_beside.values()) for name in names},
        is_staged=job.storage != "memory",
        schedule=job.schedule,
        models_beside=possible_models(models_beside, runs_beside),
        races=races,
        runs_beside=runs_beside,
    )


def race_label(variant: Variant) -> str:
    """Return the name of a variant in races: another version is another variant."""
    return f"{variant.name} {variant.version}"


# ---- iterations


def first_plan(
    job: ResolvedJob, spec: JobSpec, infos: Sequence[DeviceInfo], state: PlanningState
) -> tuple[JobPlan, iterations.IterationBalance]:
    """Return variants and first shares, and the balance over all devices of the job, by slot.

    Those without an assignment are lost. Chunks have no meaning: rows change while the job runs.
    Raises Unavailable, or DataError if no device's memory holds one row.
    """
    assert job.iterative is not None and isinstance(job.workload, Iterative)
    overhead = piece_overhead(job.workload, job.params)
    single = [info for info in infos if not info.members]
    found = find_candidates(job, single or infos, state)
    demands = {each.info.name: _demand_of_rows(each, overhead) for each in found}
    candidates = [each for each in found if demands[each.info.name].fits([1])]
    if not candidates:
        demand = found[0].demand
        raise errors.DataError(
            f"one row needs {demand.need([1]) + overhead} bytes of device memory, the limit is"
            f" {demand.limit}"
        )
    chosen = choose_variants(candidates, job.load / len(candidates), state.plan_cache)
    names = [each.info.name for each in candidates]
    choices = dict(zip(names, chosen, strict=True))
    capacities = {
        each.info.name: _capacity(each, demands[each.info.name], job.load) for each in candidates
    }
    row = candidates[0].demand
    row_bytes = row.need([2]) - row.need([1])  # inputs, state and outputs
    is_modelled = all(each.info.clock == "virtual" for each in candidates)
    balance = iterations.IterationBalance(
        job.load,
        len(job.devices),
        spec.balance,
        granule=job.iterative.granule,
        capacities=[capacities.get(device) for device in job.devices],
        models=[choices.get(device, ("", None))[1] for device in job.devices],
        absent=[slot for slot, device in enumerate(job.devices) if device not in choices],
        warm_up=bool(spec.warm_up),
        seconds_per_row=0.0 if is_modelled else row_bytes / MOVE_BYTES_PER_SECOND,
    )
    rows = dict(zip(job.devices, balance.rows, strict=True))
    assignments = tuple(
        _assignment_of_rows(job, number, each, rows[each.info.name], *choice, overhead)
        for number, (each, choice) in enumerate(zip(candidates, chosen, strict=True))
    )
    known = [each.predicted_seconds for each in assignments if each.plan.share]
    predicted = None if None in known else max(filter(None, known), default=None)
    return JobPlan(assignments, predicted, candidates=tuple(candidates)), balance


def _demand_of_rows(candidate: Candidate, overhead: int) -> MemoryDemand:
    """Return the demand; its limit is without what a device with a link needs besides its rows."""
    limit = candidate.demand.limit if candidate.info.link else None
    return replace(candidate.demand, limit=None if limit is None else max(0, limit - overhead))


def _capacity(candidate: Candidate, demand: MemoryDemand, load: int) -> int | None:
    """Return how many rows fit in a device's memory; None: unknown. A core has the arena."""
    if candidate.info.is_core:
        return load
    return None if demand.limit is None else demand.max_chunk(load)


def _assignment_of_rows(
    job: ResolvedJob,
    number: int,
    candidate: Candidate,
    share: int,
    variant: str,
    model: DeviceModel | None,
    overhead: int,
) -> Assignment:
    """Return one whose slot memory is for all rows, as far as a device with a link has it."""
    needed, limit = aligned(candidate.demand.need([job.load]) + overhead), candidate.demand.limit
    slot_memory = needed if limit is None else min(needed, limit)
    return Assignment(
        device=candidate.info.name,
        variant=variant,
        plan=DevicePlan(((share,),) if share else ()),
        chunks=(Chunk(number, 0, max(1, share)),),
        max_chunk=job.load,
        slots=1,
        slot_memory=slot_memory if candidate.info.link else 0,
        window=1,
        predicted_seconds=float(model.time(share)) if model is not None and share else None,
        candidate=candidate,
        model=model,
    )


# ---- learning


def learn_run(job: ResolvedJob, run: Run, state: PlanningState, kind: JobKind) -> None:
    """Update models and planner after a run of `job`. The store is not flushed to disk."""
    now = time.time()
    lessons = learn(run)
    infos = {device: each.info for device, each in run.devices.items()}
    groups: dict[Lesson, list[ModelKey]] = {}
    for (device, name, beside), key in _observe(job, infos, lessons.samples, state).items():
        if infos[device].is_core:
            groups.setdefault((infos[device].identity, name, beside), []).append(key)
    for equal in groups.values():  # fitted in advance, for the next plan
        pooled_models(state.store.load_many(equal, False), state.plan_cache)
    for identity, race in lessons.races.items():
        info = next(info for info in infos.values() if info.identity == identity)
        labels = {v.name: race_label(v) for v in state.usable_variants(job, info)}
        paces = {labels[name]: found for name, found in race.paces.items() if name in labels}
        race_key = RaceKey(job.workload.name, job.speed_key, identity, job.storage)
        state.store.add_race(race_key, Race(race.number, race.units, paces, now))
    state.raise_memory_limits(infos.values())
    if not run.is_contended:
        state.plans.planner(kind, job.load).report(run.plan, run.paces)


def _observe(
    job: ResolvedJob,
    infos: Mapping[str, DeviceInfo],
    samples: Mapping[Lesson, Sequence[Sample]],
    state: PlanningState,
) -> dict[Lesson, ModelKey]:
    """Store samples with the models of variants that still work; return their keys."""
    keys = {
        (device, name, beside): model_key(job, infos[device], variant, beside)
        for device, name, beside in samples
        for variant in state.usable_variants(job, infos[device])  # it may have failed since
        if variant.name == name
    }
    state.store.observe_many([(key, samples[of]) for of, key in keys.items()], time.time())
    return keys


def learn_rows(
    job: ResolvedJob,
    assignments: Mapping[str, Assignment],
    infos: Mapping[str, DeviceInfo],
    times: Iterable[tuple[str, int, float, float | None]],
    state: PlanningState,
) -> None:
    """Update the models of the devices that computed iterations. The store isn't flushed.

    A device that copied has the curve "compute", too: the rest of its time is NEC's XFER_TIME.
    """
    samples: dict[str, list[Sample]] = {}
    for device, rows, seconds, compute in times:
        if is_time(seconds):
            samples.setdefault(device, []).append(Sample("total", rows, seconds))
            if compute is not None and is_time(compute):
                samples[device].append(Sample("compute", rows, compute))
    measured = [device for device in samples if device in assignments]
    beside = co_runners_of([infos[device] for device in measured], state.machine())
    of_variants = {
        (device, assignments[device].variant, beside[device]): samples[device]
        for device in measured
    }
    _observe(job, infos, of_variants, state)
