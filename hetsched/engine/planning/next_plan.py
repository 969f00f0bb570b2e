"""The plan of the next run of a job, from models.db and earlier runs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence

from hetsched import errors
from hetsched.device import Chunk, DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob, declared_demand
from hetsched.engine.planning.planning_state import PlanningState, job_kind
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.models.evidence.co_runners import CO_RUNNERS, CoRunners
from hetsched.models.evidence.races import NO_RACES, RaceRecord
from hetsched.planner.device_sets.neighbours import co_runners_of
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.plans.device_plan import DevicePlan
from hetsched.plans.search.recipes import evenly
from hetsched.plans.slot_allocation import slot_bytes, slotted
from hetsched.store import model_records
from hetsched.store.model_records import ModelKey
from hetsched.workload import Variant

WINDOW = 2
"""Chunks sent ahead of a share that doesn't fit in memory as a whole."""


def next_plan(
    job: ResolvedJob,
    infos: Sequence[DeviceInfo],
    state: PlanningState,
    memory_limit: int | None,
    unstarted: Collection[str] = (),
) -> JobPlan:
    """Return shares, chunks and variants for the next run of `job`.

    Parameters
    ----------
    infos : sequence of DeviceInfo
        The devices that may take part.
    memory_limit : int or None, bytes
        Of each device's own memory.
    unstarted : collection of str
        Devices whose process isn't running yet.
    """
    if job.measure:
        return equal_plan(
            job.load,
            [(info, device_demand(job, info, state, memory_limit)) for info in infos],
            job.measure,
            lambda info: [variant.name for variant in state.variants.usable(job, info)],
        )
    kind = job_kind(job, (info.name for info in infos), memory_limit)
    rebalancer = state.plans.rebalancer(kind, job.load)
    if rebalancer.needs_candidates:
        plan = rebalancer.replan(
            find_candidates(job, infos, state, memory_limit, unstarted),
            state.machine(),
            state.plans.runs(kind),
        )
    else:
        plan = rebalancer.repeat()
    changes = [state.speed_changes.pop(info.name, "") for info in infos]
    if not any(changes):
        return plan
    return dataclasses.replace(plan, reasons=(*plan.reasons, *filter(None, changes)))


def equal_plan(
    load: int,
    devices: Sequence[tuple[DeviceInfo, MemoryDemand]],
    variants: Mapping[str, str],
    usable_variants: Callable[[DeviceInfo], Sequence[str]],
) -> JobPlan:
    """Give every device an equal share of `load`, in as few chunks as its memory allows.

    Parameters
    ----------
    load : int, units
        A multiple of the number of measured devices.
    devices : sequence of (DeviceInfo, MemoryDemand)
        The devices that are available.
    variants : mapping
        Device to measure -> its variant.
    usable_variants : callable
        DeviceInfo -> names of its usable variants.
    """
    if load % len(variants):
        raise errors.UsageError(
            f"{load} units can't be divided equally among {len(variants)} devices"
        )
    available = {info.name: (info, demand) for info, demand in devices}
    _check_teams([info for info, _ in devices], variants)
    for device, variant in variants.items():
        if device not in available:
            raise errors.Unavailable(f"{device} can't be measured: it is no longer available")
        if variant not in usable_variants(available[device][0]):
            raise errors.Unavailable(
                f"{device} can't be measured with {variant}: it doesn't work there"
            )
    share = load // len(variants)
    chunk_ids = itertools.count()
    assignments = tuple(
        _assignment(*available[device], variant, share, number * share, chunk_ids)
        for number, (device, variant) in enumerate(variants.items())
    )
    return JobPlan(assignments, None, (f"measured: {share} units on each device",))


def _check_teams(infos: Sequence[DeviceInfo], variants: Mapping[str, str]) -> None:
    for info in infos:
        if info.name in variants and not variants.keys().isdisjoint(info.members):
            raise errors.UsageError(f"{info.name} can't be measured together with its own cores")


def _assignment(
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
        window=WINDOW,
        predicted_seconds=None,
    )


def find_candidates(
    job: ResolvedJob,
    infos: Sequence[DeviceInfo],
    state: PlanningState,
    memory_limit: int | None,
    unstarted: Collection[str] = (),
) -> list[Candidate]:
    """Return a candidate for each device with an installed variant.

    Parameters
    ----------
    memory_limit : int or None, bytes
        Of each device's own memory, from the user or the configuration.
    unstarted : collection of str
        Devices whose process isn't running yet.
    """
    beside = co_runners_of(infos, state.machine())
    candidates = [
        dataclasses.replace(
            candidate.beside(beside[info.name]), needs_start=info.name in unstarted
        )
        for info in infos
        if (candidate := _candidate(job, info, state, memory_limit)) is not None
    ]
    if not candidates:
        if infos and all(info.members for info in infos):
            teams = ", ".join(info.name for info in infos)
            raise errors.Unavailable(
                f"{job.workload.name} has no multithreaded variant for {teams}; choose cpu, the"
                " single cores"
            )
        kinds = ", ".join(sorted({info.kind for info in infos}))
        failures = dict.fromkeys(r for info in infos for r in state.variants.reasons(job, info))
        reasons = "".join(f"; {reason}" for reason in failures)
        raise errors.Unavailable(
            f"no working variant of {job.workload.name} is installed for the selected devices"
            f" ({kinds}){reasons}"
        )
    return candidates


def model_key(
    job: ResolvedJob,
    info: DeviceInfo,
    variant: Variant,
    co_runners: CoRunners = "all",
) -> ModelKey:
    """Return the key in models.db of `variant` on `info` beside these neighbours."""
    return ModelKey(
        workload=job.workload.name,
        speed_key=job.speed_key,
        variant=variant.name,
        version=variant.version,
        device=f"{info.name} {info.identity}",
        storage=job.storage,
        co_runners=co_runners,
    )


def probe_key(job: ResolvedJob, info: DeviceInfo) -> model_records.ProbeKey:
    """Return the key in models.db of `info` without a share in jobs like this one."""
    device = f"{info.name} {info.identity}"
    return model_records.ProbeKey(job.workload.name, job.speed_key, device, job.storage, job.load)


def device_demand(
    job: ResolvedJob, info: DeviceInfo, state: PlanningState, memory_limit: int | None
) -> MemoryDemand:
    """Return the demand of `job` on `info` with its lowest limit, or no limit without a link."""
    demand = declared_demand(job.workload, job.params, info.kind)
    limits = (info.memory, memory_limit, state.memory_limits.get(info.name)) if info.link else ()
    limit = min((limit for limit in limits if limit is not None), default=None)
    return dataclasses.replace(demand, limit=limit)


def _candidate(
    job: ResolvedJob,
    info: DeviceInfo,
    state: PlanningState,
    memory_limit: int | None,
) -> Candidate | None:
    variants = state.variants.usable(job, info)
    if not variants:
        return None
    names = [variant.name for variant in variants]
    keys = [model_key(job, info, v, c) for c in CO_RUNNERS for v in variants]
    models_beside: dict[CoRunners, dict[str, DeviceModel]] = {}
    runs_beside: dict[CoRunners, dict[str, int]] = {}
    for key, model in zip(keys, state.store.load_many(keys, info.link), strict=True):
        runs_beside.setdefault(key.co_runners, {})[key.variant] = state.store.runs(key)
        if model is not None:
            models_beside.setdefault(key.co_runners, {})[key.variant] = model
    return Candidate(
        info=info,
        demand=device_demand(job, info, state, memory_limit),
        models=dict.fromkeys(names),
        run_counts={name: sum(counts[name] for counts in runs_beside.values()) for name in names},
        is_staged=job.storage != "memory",
        models_beside=models_beside,
        probe_state=state.store.probe_state(probe_key(job, info)),
        races=_races(job, info, variants, state),
        runs_beside=runs_beside,
    )


def race_key(job: ResolvedJob, info: DeviceInfo) -> model_records.RaceKey:
    """Return the key in models.db of the races on cores like `info`."""
    return model_records.RaceKey(job.workload.name, job.speed_key, info.identity, job.storage)


def race_label(variant: Variant) -> str:
    """Return the name of a variant in races: another version is another variant."""
    return f"{variant.name} {variant.version}"


def _races(
    job: ResolvedJob,
    info: DeviceInfo,
    variants: Sequence[Variant],
    state: PlanningState,
) -> RaceRecord:
    if not info.is_core or len(variants) < 2:
        return NO_RACES
    record = state.store.races(race_key(job, info))
    return record.renamed({race_label(variant): variant.name for variant in variants})
