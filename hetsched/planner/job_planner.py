"""The JobPlan of a load, given models of all devices: variants, shares, chunks and reasons.

Devices without a model get an equal share (with a link by factoring by two: Ilic & Sousa,
initialization). The rest is partitioned so that all devices with a model finish together; a device
with a link is represented by the predicted time of its best plan. Pure: the engine looks up models
beforehand and stores measurements afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence

from hetsched.errors import DataError, UsageError
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.partition import geometric
from hetsched.planner.assignment import (
    Participant,
    RacePart,
    core_assignment,
    linked_assignment,
    plan_tails,
    race_part,
    sent_at_once,
)
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.totals import CoreTotal, LinkedTotal, PlanCache, demand_key
from hetsched.planner.variants import choose_variants, scaled, standing
from hetsched.plans.device_plan import DevicePlan, Mode
from hetsched.plans.slots import slotted
from hetsched.units import counted, format_bytes


def plan_job(
    load: int,
    candidates: Sequence[Candidate],
    fixed_shares: Mapping[str, int] | None = None,
    *,
    cache: PlanCache | None = None,
) -> JobPlan:
    """Split `load` over `candidates`; those whose share is 0 get no assignment.

    `fixed_shares`: plan only the chunks of these. Raises DataError if one unit is too big for
    every device, UsageError if the load is not positive, there are no candidates, or the fixed
    shares don't sum to `load`.
    """
    if load < 1 or not candidates:
        raise UsageError(
            f"load: {load} units for {len(candidates)} devices; needs at least 1 of both"
        )
    cache = PlanCache() if cache is None else cache
    usable, reasons = _usable(candidates)
    participants = _participants(load, usable, cache)
    if fixed_shares is None:
        shares = _split(load, participants, cache)
    else:
        shares = [fixed_shares.get(part.name, 0) for part in participants]
        if sum(shares) != load:
            raise UsageError(f"fixed shares: they sum to {sum(shares)} units, the load is {load}")
        for part, share in zip(participants, shares, strict=True):
            if part.total is not None and share:
                part.total.refine(share)
    assignments = _assignments(load, participants, shares)
    by_device = {assignment.device: assignment for assignment in assignments}
    reasons += [_reason(part, by_device.get(part.name)) for part in participants]
    reasons += _standings(participants, shares)
    seconds = [assignment.predicted_seconds for assignment in assignments]
    return JobPlan(
        assignments,
        None if None in seconds else max(filter(None, seconds), default=None),
        tuple(reasons),
        curves={part.name: part.total.curve for part in participants if part.total is not None},
        candidates=tuple(usable),
    )


def _usable(candidates: Sequence[Candidate]) -> tuple[list[Candidate], list[str]]:
    """Return the candidates whose memory holds one unit, and why the others are not used."""
    usable, reasons = [], []
    for candidate in candidates:
        if not candidate.models:
            reasons.append(f"{candidate.info.name}: not used, it has no usable variant")
        elif candidate.info.link and not (demand := slotted(candidate.demand)).fits([1]):
            need, limit = format_bytes(demand.need([1])), format_bytes(demand.limit or 0)
            reasons.append(
                f"{candidate.info.name}: not used, one unit needs {need} of its memory, the limit"
                f" is {limit}"
            )
        else:
            usable.append(candidate)
    if not usable:
        raise DataError(f"no device can hold one unit: {'; '.join(reasons)}")
    return usable, reasons


def _participants(
    load: int, candidates: Sequence[Candidate], cache: PlanCache
) -> list[Participant]:
    """Return the devices with their variants. Equal ones share a total, and so their plans."""
    choices = choose_variants(candidates, load / len(candidates), cache)
    totals: dict[Hashable, CoreTotal | None] = {}
    participants = []
    for candidate, (variant, model) in zip(candidates, choices, strict=True):
        key: Hashable = None
        if model is not None and candidate.info.link:
            key = (
                *(id(model), demand_key(candidate.demand, load), id(candidate.last_plan)),
                *(candidate.info.engines, candidate.info.memory, candidate.is_staged),
            )
        elif model is not None:
            key = id(model.total), candidate.race
        if key not in totals:
            totals[key] = _total(candidate, model, load, cache)
        participants.append(Participant(candidate, variant, model, totals[key]))
    return participants


def _total(
    candidate: Candidate, model: DeviceModel | None, load: int, cache: PlanCache
) -> CoreTotal | None:
    if model is None:
        return None
    if not candidate.info.link:
        ratio = 1.0 if candidate.race is None else candidate.race.time_ratio
        return CoreTotal(scaled(model, ratio).total)
    return LinkedTotal(
        model,
        candidate.memory,
        candidate.overlap,
        load,
        last=candidate.last_plan,
        is_corrected=not candidate.is_constrained,
        memory_key=(demand_key(candidate.demand, load), candidate.is_staged),
        schedule=candidate.schedule,
        cache=cache,
    )


def _split(load: int, participants: Sequence[Participant], cache: PlanCache) -> list[int]:
    """Return the units of each participant; unmeasured ones first, so that small loads measure."""
    measured = [i for i, part in enumerate(participants) if part.total is not None]
    unmeasured = [i for i, part in enumerate(participants) if part.total is None]
    shares = [0] * len(participants)
    remaining = load
    for order, index in enumerate(unmeasured):
        # Without a measured device for the rest, the last ones make up for rounding.
        waiting = len(unmeasured) - order if not measured else 0
        equal = -(-remaining // waiting) if waiting else max(1, load // len(participants))
        shares[index] = min(remaining, equal)
        remaining -= shares[index]
    if measured and remaining:
        totals = [part.total for part in participants if part.total is not None]
        for index, share in zip(measured, split_load(remaining, totals, cache), strict=True):
            shares[index] = share
    return shares


def split_load(load: int, totals: Sequence[CoreTotal], cache: PlanCache) -> tuple[int, ...]:
    """Return shares that sum to `load`, such that all devices finish together. (Ours.)

    The curve of each device with a link starts as a closed-form estimate. Plans are made for the
    shares of the resulting split alone; the curves are refined with their times, and the load is
    split again, until the split repeats or stops improving.
    """
    if not any(total.is_refinable for total in totals):
        return _search(load, totals)
    fingerprints = tuple(total.fingerprint for total in totals)

    def compute() -> tuple[tuple[int, ...], tuple[SpeedFunction, ...]]:
        shares = _search(load, totals)
        return shares, tuple(total.curve for total in totals)

    key = None if None in fingerprints else (load, fingerprints)
    shares, curves = cache.get("splits", key, compute)
    for total, curve in zip(totals, curves, strict=True):
        total.curve = curve
    return shares


def _search(load: int, totals: Sequence[CoreTotal]) -> tuple[int, ...]:
    makespans: dict[tuple[int, ...], float] = {}
    for _ in range(3):  # one costs 0.7 %, two 0.05 %
        split = geometric([total.curve for total in totals], load)
        if not any(total.is_refinable for total in totals):
            return split.shares
        if split.shares in makespans:
            break
        if makespans and split.makespan > 0.9998 * min(makespans.values()):
            break  # no gain worth another round of plans
        for total, share in zip(totals, split.shares, strict=True):
            if share:
                total.refine(share)
        makespans[split.shares] = makespan(totals, split.shares)
    return min(makespans, key=lambda shares: makespans[shares])


def makespan(totals: Sequence[CoreTotal], shares: Sequence[int]) -> float:
    return max(
        float(total.curve.time(share))
        for total, share in zip(totals, shares, strict=True)
        if share
    )


def _assignments(
    load: int, participants: Sequence[Participant], shares: Sequence[int]
) -> tuple[Assignment, ...]:
    """Cut the shares into chunks: the devices' own parts in order, then the shared tails."""
    pairs = [(part, share) for part, share in zip(participants, shares, strict=True) if share]
    pooled, races = plan_tails(pairs, load), _races(pairs)
    chunk_ids = itertools.count()
    cuts: dict[Hashable, Assignment] = {}
    assignments: list[Assignment] = []
    first = 0
    for part, share in pairs:
        if part.candidate.info.link:
            plan = part.linked_plan(share)
            assignments.append(linked_assignment(part, plan, first, chunk_ids))
        else:
            taken = races.get(part.name) or pooled.get(part.name)
            assignments.append(core_assignment(part, share, first, chunk_ids, taken, cuts))
        first += assignments[-1].own_units
    return sent_at_once(assignments)


def _races(pairs: Sequence[tuple[Participant, int]]) -> dict[str, RacePart]:
    """Return core -> its part of a race; none of those with too few units, or far fewer."""
    racing = [(part, share, part.candidate.race) for part, share in pairs if part.candidate.race]
    largest = max((share for _, share, _ in racing), default=0)
    groups: dict[object, list[tuple[Participant, int]]] = {}
    for participant, share, race in racing:
        if share > len(race.rivals) and 4 * share >= largest:  # chunks take about as long
            key = (participant.candidate.info.identity, participant.variant, race)
            groups.setdefault(key, []).append((participant, share))
    parts: dict[str, RacePart] = {}
    for group in groups.values():
        planned = group[0][0].candidate.race
        assert planned is not None, "it is part of the key"
        part = race_part(planned, group)
        parts.update((core.name, part) for core, _ in group)
    return parts


def _reason(participant: Participant, assignment: Assignment | None) -> str:
    name, variant = participant.name, participant.variant
    if assignment is None and participant.total is None:
        return f"{name}: no share, too few units to measure it too"
    if assignment is None:
        return f"{name}: no share, the job finishes sooner without it"
    units, race = counted(assignment.plan.share, "unit"), ""
    if assignment.rivals:
        race = f", which races against {', '.join(assignment.rivals)}"
    if participant.total is None:
        return f"{name}: {units}, an equal share: no measurements for {variant} yet{race}"
    chunks = f", {_describe(assignment.plan)}" if participant.candidate.info.link else ""
    return f"{name}: {units} by the speed of {variant}{chunks}{race}"


def _standings(participants: Sequence[Participant], shares: Sequence[int]) -> list[str]:
    devices: dict[str, str] = {}
    for participant, share in zip(participants, shares, strict=True):
        candidate = participant.candidate
        if share and len(candidate.models) > 1:
            record = candidate.races.similar(share)
            text = standing(record, participant.variant, list(candidate.models))
            devices.setdefault(text, participant.name)
    return [f"{name}: {text}" for text, name in devices.items() if text]


def _describe(plan: DevicePlan) -> str:
    count = len(plan.chunks)
    chunks = "one chunk" if count == 1 else f"{count} chunks"
    if plan.mode is Mode.RING:
        return f"{chunks} in a ring of {plan.slots}" if plan.slots > 1 else f"{chunks} in turn"
    installments = len(plan.sub_distributions)
    return chunks if installments == 1 else f"{chunks} in {installments} installments"
