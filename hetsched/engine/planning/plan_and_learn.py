"""From a resolved job and what is known to a JobPlan, and from a run back to knowledge.

Runs in the planner's thread. The decisions are `schedule.planner`'s; this file looks models up
before, and stores what was measured after.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.devices.registry import throttle_reasons
from hetsched.engine.planning.experience import Experience, PlanKey, plan_key
from hetsched.engine.planning.measurement import equal_plan
from hetsched.engine.resolve import Resolved
from hetsched.errors import Unavailable
from hetsched.memory import MemoryDemand
from hetsched.models.evidence.host_overhead import (
    overhead_by_core,
    overhead_seconds,
    without_overhead,
)
from hetsched.models.evidence.samples import JUDGED, Sample, as_contended, duplex_samples, samples
from hetsched.planner.host_overhead import may_share_core
from hetsched.planner.job_planner import Assignment, Candidate, JobPlan
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.variants import pooled_models
from hetsched.store.model_store import ModelKey, ModelStore
from hetsched.workload import Variant

log = logging.getLogger(__name__)


def key(job: Resolved, info: DeviceInfo, variant: Variant, speed_key: str) -> ModelKey:
    return ModelKey(
        workload=job.workload.name,
        speed_key=speed_key,
        variant=variant.name,
        version=variant.version,
        device=f"{info.name} {info.identity}",
        storage=job.storage,
    )


def demand(job: Resolved, info: DeviceInfo, limits: Sequence[int | None]) -> MemoryDemand:
    """The workload's demand with the device's limit filled in; no limit without a link."""
    asked = job.workload.demand(job.params, info.kind)
    if not info.link:
        return dataclasses.replace(asked, limit=None)
    known = [limit for limit in (info.memory, *limits) if limit is not None]
    return dataclasses.replace(asked, limit=min(known, default=None))


def plan(
    job: Resolved,
    infos: Sequence[DeviceInfo],
    store: ModelStore,
    experience: Experience,
    memory_limit: int | None,
    asleep: Collection[str] = (),
) -> JobPlan:
    """Shares, chunks and variants for `infos`; those `asleep` would first have to be started.

    Raises
    ------
    DataError
        A unit is too big for every device. Unavailable: nothing is installed that could compute.
    """
    if job.measure:
        limits = [(memory_limit, experience.memory.get(info.name)) for info in infos]
        return equal_plan(
            job.load,
            [(info, demand(job, info, limit)) for info, limit in zip(infos, limits, strict=True)],
            job.measure,
            lambda info: [v.name for v in experience.variants(job, info)],
        )
    known = plan_key(job, (info.name for info in infos), memory_limit)
    speed_key = job.workload.speed_key(job.params)
    rebalancer = experience.rebalancer(known, job.load)
    if rebalancer.needs_candidates:
        candidates = _candidates(job, infos, speed_key, store, experience, memory_limit)
        found = rebalancer.replan(
            [dataclasses.replace(c, needs_start=c.info.name in asleep) for c in candidates]
        )
    else:
        found = rebalancer.repeat()
    changes = tuple(experience.changes.pop(info.name, "") for info in infos)
    if not any(changes):
        return found
    return dataclasses.replace(found, reasons=(*found.reasons, *filter(None, changes)))


def _candidates(
    job: Resolved,
    infos: Sequence[DeviceInfo],
    speed_key: str,
    store: ModelStore,
    experience: Experience,
    memory_limit: int | None,
) -> Sequence[Candidate]:
    """What is known of the devices for which something is installed."""
    candidates = [
        candidate
        for info in infos
        if (candidate := _candidate(job, info, speed_key, store, experience, memory_limit))
    ]
    if not candidates:
        kinds = ", ".join(sorted({info.kind for info in infos}))
        raise Unavailable(
            f"{job.workload.name} has no implementation installed for the devices chosen ({kinds})"
        )
    return candidates


def _candidate(
    job: Resolved,
    info: DeviceInfo,
    speed_key: str,
    store: ModelStore,
    experience: Experience,
    memory_limit: int | None,
) -> Candidate | None:
    """`info` with what is known of it; None if nothing is installed for it."""
    variants = experience.variants(job, info)
    if not variants:
        return None
    keys = [key(job, info, variant, speed_key) for variant in variants]
    names = [variant.name for variant in variants]
    return Candidate(
        info=info,
        demand=demand(job, info, (memory_limit, experience.memory.get(info.name))),
        models=dict(zip(names, store.load_many(keys, info.link), strict=True)),
        run_counts={name: store.runs(k) for name, k in zip(names, keys, strict=True)},
        is_staged=job.storage != "memory",
    )


@dataclass(frozen=True)
class Measured:
    """What one device did: its chunks in the order of execution, on its own clock."""

    assignment: Assignment
    info: DeviceInfo
    chunks: tuple[tuple[int, ChunkTimes], ...]

    @property
    def seconds(self) -> float:
        if not self.chunks:
            return 0.0
        start = min(times.start for _, times in self.chunks)
        return max(times.end for _, times in self.chunks) - start

    @property
    def share(self) -> int:
        return sum(units for units, _ in self.chunks)


def learn(
    job: Resolved,
    plan: JobPlan,
    measured: Mapping[str, Measured],
    store: ModelStore,
    experience: Experience,
    known: PlanKey,
) -> None:
    """Keep what a whole, uncontended run showed; whoever owns the store has it written later."""
    speed_key = job.workload.speed_key(job.params)
    runs = []
    lost = _overhead_on_cores(measured)
    for name, one in measured.items():
        if not one.chunks:
            continue
        installed = experience.variants(job, one.info)
        variant = next((v for v in installed if v.name == one.assignment.variant), None)
        if variant is None:  # it broke in a job that came after
            continue
        evidence = samples(
            without_overhead(one.chunks, lost.get(name, 0.0)),
            one.assignment.plan.sub_distributions,
            one.share,
            one.seconds - lost.get(name, 0.0),
            link=one.info.link,
        )
        if one.info.link:
            evidence += duplex_samples(one.chunks)
        planned = one.assignment.candidate
        if planned is not None and planned.is_memory_limited:
            evidence = _of_chunks(evidence, one)
        slowed = _throttled(one)
        if slowed:
            log.info("%s ran slower than it could: %s", name, ", ".join(slowed))
            evidence = as_contended(evidence)
        runs.append((key(job, one.info, variant, speed_key), evidence))
    changes = store.observe_many(runs, time.time(), flush=False)
    _share(measured, [one for one, _ in runs], store, experience.plan_cache)
    experience.did_well(measured)
    seconds = {name: one.seconds for name, one in measured.items() if one.chunks}
    rebalancer = experience.rebalancer(known, job.load)
    if all(one.share == one.assignment.plan.share for one in measured.values()):
        rebalancer.report(plan, seconds, makespan(measured))
    else:  # times say nothing of the split
        rebalancer.report_moved_work(plan)
    for changed, change in changes.items():
        device = changed.device.split()[0]
        said = f"{device}: {changed.workload} by {changed.variant} {change}"
        log.info("%s", said)
        experience.changed(device, said)


def _of_chunks(evidence: Sequence[Sample], one: Measured) -> list[Sample]:
    """Without what the chunks took together: with all of its memory the device is faster."""
    sizes = {units for units, _ in one.chunks}
    return [sample for sample in evidence if sample.curve != "total" or sample.units in sizes]


def _throttled(one: Measured) -> tuple[str, ...]:
    """Why a device ran slower than it could, asked just after a run that is long enough."""
    return throttle_reasons(one.info) if one.seconds >= JUDGED else ()


def _overhead_on_cores(measured: Mapping[str, Measured]) -> dict[str, float]:
    """Core -> seconds of other devices' host overhead on it, where that is known."""
    cores = {name: one for name, one in measured.items() if one.info.is_core and one.chunks}
    found: dict[str, float] = dict.fromkeys(cores, 0.0)
    for feeder in measured.values():
        seconds = overhead_seconds(feeder.chunks) if feeder.info.clock == "wall" else 0.0
        if not seconds:
            continue
        on = {
            name: one.chunks
            for name, one in cores.items()
            if may_share_core(feeder.info, one.info)
        }
        for name, part in overhead_by_core(on, seconds).items():
            found[name] += part
    return found


def _share(
    measured: Mapping[str, Measured],
    known: Sequence[ModelKey],
    store: ModelStore,
    cache: PlanCache,
) -> None:
    """Fit what equal cores have in common now, so that the next plan needn't wait for it."""
    cores = [one for one in measured.values() if one.chunks]
    equal: dict[tuple[str, str], list[ModelKey]] = {}
    for one, found in zip(cores, known, strict=True):
        if one.info.is_core:
            equal.setdefault((one.info.identity, found.variant), []).append(found)
    for keys in equal.values():
        pooled_models(store.load_many(keys, False), cache)


def makespan(measured: Mapping[str, Measured]) -> float:
    """First chunk's start to last chunk's end; virtual clocks all start at 0: the latest end."""
    busy = [one for one in measured.values() if one.chunks]
    if any(one.info.clock == "virtual" for one in busy):
        return max((one.seconds for one in busy), default=0.0)
    chunks: list[ChunkTimes] = [times for one in busy for _, times in one.chunks]
    if not chunks:
        return 0.0
    return max(times.end for times in chunks) - min(times.start for times in chunks)


def spread(measured: Mapping[str, Measured]) -> float:
    """(longest - shortest) / shortest time of the devices that had a share; 0 for one device."""
    seconds = [one.seconds for one in measured.values() if one.chunks]
    if len(seconds) < 2 or min(seconds) <= 0:
        return 0.0
    return (max(seconds) - min(seconds)) / min(seconds)
