"""The plan of an iterative job: the variant of each device, and the first shares of the rows.

Runs in the planner's thread. Chunks have no meaning here: an assignment says with which variant a
device iterates; its rows change while the job runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched.device import Chunk, DeviceInfo
from hetsched.devices.cuda.iterating.piece_sizes import piece_overhead
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning.next_plan import find_candidates
from hetsched.engine.planning.planning_state import PlanningState
from hetsched.errors import DataError
from hetsched.job import JobSpec
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.models.curves.curve import SpeedFunction, planner_curve
from hetsched.partition import iterations
from hetsched.partition.iterations.history_table import HistoryEntry
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.variants import choose_variants
from hetsched.plans.device_plan import DevicePlan
from hetsched.plans.slot_allocation import aligned
from hetsched.workload import Iterative

MOVE_BYTES_PER_SECOND = 4e9
"""Memory speed of a core that gets rows of another one: the least cost of moving them. Arbitrary
within a factor of two."""


@dataclass(frozen=True)
class FirstPlan:
    """`balance`: over all devices of the job, by slot; those without an assignment are lost."""

    plan: JobPlan
    balance: iterations.IterationBalance


def first_plan(
    job: ResolvedJob,
    spec: JobSpec,
    infos: Sequence[DeviceInfo],
    state: PlanningState,
    memory_limit: int | None = None,
) -> FirstPlan:
    """Return variants and first shares.

    Parameters
    ----------
    infos : sequence of DeviceInfo
        The devices that may take part.
    memory_limit : int or None, bytes
        Of each device's own memory.

    Raises
    ------
    Unavailable
        No variant is installed for any device.
    DataError
        All of them have memory of their own, which doesn't hold one row.
    """
    assert job.iterative is not None
    candidates = _with_memory(
        job, find_candidates(job, _without_teams(infos), state, memory_limit)
    )
    models = _models(candidates, job.load, state)
    is_modelled = all(candidate.info.clock == "virtual" for candidate in candidates)
    balance = iterations.IterationBalance(
        job.load,
        len(job.devices),
        spec.balance,
        granule=job.iterative.granule,
        capacities=_capacities(job, candidates),
        kinds=_kinds(job, candidates),
        models=[models.get(device, ("", None))[1] for device in job.devices],
        absent=[slot for slot, device in enumerate(job.devices) if device not in models],
        history=_history(candidates, models),
        warm_up=bool(spec.warm_up),
        names=job.devices,
        seconds_per_row=0.0 if is_modelled else _row_bytes(candidates) / MOVE_BYTES_PER_SECOND,
        is_exact=is_modelled,
    )
    return FirstPlan(_plan(job, candidates, models, balance), balance)


def _with_memory(job: ResolvedJob, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the candidates without those whose memory doesn't hold one row. Raises DataError."""
    fitting = [candidate for candidate in candidates if _fitting_demand(job, candidate).fits([1])]
    if not fitting:
        demand = candidates[0].demand
        raise DataError(
            f"one row needs {demand.need([1]) + _overhead(job)} bytes of device memory, the limit"
            f" is {demand.limit}"
        )
    return fitting


def _fitting_demand(job: ResolvedJob, candidate: Candidate) -> MemoryDemand:
    """Return the demand, without what a device with a link needs besides its rows."""
    demand = candidate.demand
    if not candidate.info.link or demand.limit is None:
        return replace(demand, limit=None)
    return replace(demand, limit=max(0, demand.limit - _overhead(job)))


def _overhead(job: ResolvedJob) -> int:
    assert isinstance(job.workload, Iterative)
    return piece_overhead(job.workload, job.params)


def _row_bytes(candidates: Sequence[Candidate]) -> int:
    """Return the bytes of a row: inputs, state and outputs."""
    demand = candidates[0].demand
    return demand.need([2]) - demand.need([1])


def _without_teams(infos: Sequence[DeviceInfo]) -> Sequence[DeviceInfo]:
    """Return the single cores and other devices; teams only if there is nothing else."""
    single = [info for info in infos if not info.members]
    return single or infos


def _models(
    candidates: Sequence[Candidate], load: int, state: PlanningState
) -> Mapping[str, tuple[str, DeviceModel | None]]:
    """Return device -> variant, and its model if there are measurements."""
    units = load / len(candidates)
    chosen = choose_variants(candidates, units, state.plan_cache)
    only = [
        replace(
            candidate,
            models={choice.variant: candidate.models[choice.variant]},
            run_counts={choice.variant: candidate.run_counts.get(choice.variant, 0)},
        )
        for candidate, choice in zip(candidates, chosen, strict=True)
    ]
    final = choose_variants(only, units, state.plan_cache)
    return {
        candidate.info.name: (choice.variant, choice.model)
        for candidate, choice in zip(candidates, final, strict=True)
    }


def _capacities(job: ResolvedJob, candidates: Collection[Candidate]) -> list[int | None]:
    """Return by slot how many rows fit in a device's memory; None: unknown.

    A core has the arena, which holds all rows.
    """
    capacities: dict[str, int] = {}
    for candidate in candidates:
        demand = _fitting_demand(job, candidate)
        if candidate.info.is_core:
            capacities[candidate.info.name] = job.load
        elif demand.limit is not None:
            capacities[candidate.info.name] = demand.max_chunk(job.load)
    return [capacities.get(device) for device in job.devices]


def _kinds(job: ResolvedJob, candidates: Collection[Candidate]) -> list[str]:
    """Return by slot what a device is: equal ones presumably have the same speed."""
    identities = {candidate.info.name: candidate.info.identity for candidate in candidates}
    return [identities.get(device, "") for device in job.devices]


def _history(
    candidates: Collection[Candidate], models: Mapping[str, tuple[str, DeviceModel | None]]
) -> iterations.HistoryTable:
    """Return what models.db has of iterations of these devices, in the form of NEC's table.

    Without times of kernels (no copies, or stored before these were) all is compute time.
    """
    table = iterations.HistoryTable()
    for candidate in candidates:
        name = candidate.info.name
        model = candidate.models[models[name][0]]
        if model is None:
            continue
        computing = _medians(model.compute)
        for rows, total in _medians(model.total).items():
            compute = min(computing.get(rows, total), total)
            table.add(HistoryEntry(name, 0, round(rows), compute, total - compute))
    return table


def _medians(curve: SpeedFunction) -> dict[float, float]:
    """Return rows -> median of the seconds behind a curve; none if these weren't kept."""
    evidence = planner_curve(curve).evidence()
    times = {} if evidence is None else evidence.times()
    return {rows: statistics.median(observed) for rows, observed in times.items()}


def _plan(
    job: ResolvedJob,
    candidates: Collection[Candidate],
    models: Mapping[str, tuple[str, DeviceModel | None]],
    balance: iterations.IterationBalance,
) -> JobPlan:
    rows = dict(zip(job.devices, balance.rows, strict=True))
    assignments = []
    for number, candidate in enumerate(candidates):
        device = candidate.info.name
        variant, model = models[device]
        share = rows[device]
        seconds = float(model.time(share)) if model is not None and share else None
        assignments.append(
            Assignment(
                device=device,
                variant=variant,
                plan=DevicePlan(((share,),) if share else ()),
                chunks=(Chunk(number, 0, max(1, share)),),
                max_chunk=job.load,
                slots=1,
                slot_memory=_slot_memory(candidate, job),
                window=1,
                predicted_seconds=seconds,
                candidate=candidate,
                model=model,
            )
        )
    known = [each.predicted_seconds for each in assignments]
    predicted = None if None in known else max(filter(None, known), default=None)
    return JobPlan(tuple(assignments), predicted, candidates=tuple(candidates))


def _slot_memory(candidate: Candidate, job: ResolvedJob) -> int:
    """Return the bytes that a device with a link may use: for all rows, as far as it has them."""
    if not candidate.info.link:
        return 0
    rows, limit = candidate.demand.need([job.load]), candidate.demand.limit
    needed = aligned(rows + _overhead(job))
    return needed if limit is None else min(needed, limit)
