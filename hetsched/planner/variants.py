"""The variant of each device: the one measured best on this machine, by size.

Equal CPU devices share their measurements: one curve for all of them, times a factor for each
(`models.equal_cores`). In a race all cores of one kind compute chunk j with the same variant, so
that neighbours and moment are the same (`models.races`). Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from hetsched.models import DeviceModel
from hetsched.models.equal_cores import pooled_curves
from hetsched.models.functions import planner_curve
from hetsched.models.races import MAX_LOAD_RATIO, RaceRecord
from hetsched.partition.options import MIN_GAIN
from hetsched.planner.records import Assignment, Candidate, JobPlan, PlannedRace
from hetsched.planner.totals import PlanCache
from hetsched.units import counted

MIN_RACE_UNITS = 2.0
"""Units of a core's share from which on two variants can take turns within a run."""

FIRST_ROUNDS = 3
"""Rounds of a first race, and of one against a slow variant: in the first of them kernels are
cold, two count."""
MAX_RACE_CHUNKS = 16
"""Chunks of a core in a race, if the variants are close: more rounds decide sooner."""

Choice = tuple[str, DeviceModel | None]
"""A variant, and the device's model of it: that of an equal device if this one never ran it."""


def choose_variants(
    candidates: Sequence[Candidate], units: float, cache: PlanCache | None = None
) -> list[Choice]:
    """Return one choice for each candidate, at a share by its speed; `units`: the mean one."""
    cache = PlanCache() if cache is None else cache
    has_choice = any(
        len(candidate.models) > 1 or None in candidate.models.values() for candidate in candidates
    )
    shares = _expected_shares(candidates, units) if has_choice else [units] * len(candidates)
    groups: dict[object, list[int]] = {}
    for index, candidate in enumerate(candidates):
        info = candidate.info
        single = -1 if info.is_core else index
        groups.setdefault((single, info.identity, tuple(candidate.models)), []).append(index)
    choices: dict[int, Choice] = {}
    for indices in groups.values():
        members = [candidates[index] for index in indices]
        share = statistics.fmean(shares[index] for index in indices)
        name = _best(members, share)
        models = _models(members, name, share, cache)
        choices.update((i, (name, model)) for i, model in zip(indices, models, strict=True))
    return [choices[index] for index in range(len(candidates))]


def _expected_shares(candidates: Sequence[Candidate], units: float) -> list[float]:
    best_seconds = [
        min(
            (rough_seconds(model, units) for model in candidate.models.values() if model),
            default=None,
        )
        for candidate in candidates
    ]
    speeds = [1 / seconds for seconds in best_seconds if seconds]
    if not speeds:
        return [units] * len(candidates)
    mean = statistics.fmean(speeds)
    return [units / seconds / mean if seconds else units for seconds in best_seconds]


def rough_seconds(model: DeviceModel, units: float) -> float:
    """Return the seconds of `units`; with a link those of the slowest phase."""
    if not model.link:
        return float(model.total.time(units))
    phases = (model.h2d, model.compute, model.d2h)
    return max(float(phase.time(units)) for phase in phases if phase is not None)


def _best(members: Sequence[Candidate], units: float) -> str:
    """Return the variant that equal devices use: the fastest in races, else by its model.

    Of equally fast ones that with the most runs.
    """
    names = list(members[0].models)
    if len(names) == 1:
        return names[0]
    raced = members[0].races.similar(units).fastest(names) if units >= MIN_RACE_UNITS else None
    if raced is not None:
        return raced
    seconds = {}  # on the fastest member that has a model
    for name in names:
        models = {id(m.models[name]): m.models[name] for m in members}.values()
        times = [rough_seconds(model, units) for model in models if model is not None]
        if times:
            seconds[name] = min(times)
    limit = (1 + MIN_GAIN) * min(seconds.values(), default=0.0)
    runs = {name: max(m.run_counts.get(name, 0) for m in members) for name in names}
    equally_fast = [name for name in seconds if seconds[name] <= limit]
    return max(equally_fast, key=lambda name: (runs[name], -seconds[name]), default=names[0])


def similar_runs(candidate: Candidate, name: str, units: float) -> int:
    """Return the runs of a variant at loads like `units`; all if the model keeps no times.

    With a link all runs count: jobs with limited memory add no times of whole shares.
    """
    model, runs = candidate.models[name], candidate.run_counts.get(name, 0)
    evidence = None if model is None else planner_curve(model.total).evidence()
    if evidence is None or candidate.info.link:
        return runs
    low, high = units / MAX_LOAD_RATIO, units * MAX_LOAD_RATIO
    return min(runs, sum(count for size, _, count in evidence.latest() if low <= size <= high))


def equal_devices(plan: JobPlan) -> list[list[Assignment]]:
    """Return the devices with several variants, equal cores together."""
    groups: dict[object, list[Assignment]] = {}
    for assignment in plan.assignments:
        candidate = assignment.candidate
        if candidate is None or len(candidate.models) < 2 or candidate.info.is_modelled:
            continue
        info = candidate.info
        key = (info.identity, assignment.variant) if info.is_core else info.name
        groups.setdefault(key, []).append(assignment)
    return list(groups.values())


def _models(
    members: Sequence[Candidate], name: str, units: float, cache: PlanCache
) -> list[DeviceModel | None]:
    """Return each member's model of `name`, with the measurements of all members.

    One that hasn't run it gets the median model.
    """
    models = pooled_models([member.models[name] for member in members], cache)
    measured = [model for model in models if model is not None]
    if not measured or len(measured) == len(models):
        return models
    by_speed = sorted(measured, key=lambda model: float(model.total.time(units)))
    median = by_speed[(len(measured) - 1) // 2]
    return [median if model is None else model for model in models]


def pooled_models(
    models: Sequence[DeviceModel | None], cache: PlanCache | None = None
) -> list[DeviceModel | None]:
    """Return the models of equal devices, their totals fitted to the observations of all."""
    cache = PlanCache() if cache is None else cache
    # The entry keeps the models, so that their ids remain theirs.
    key = tuple(map(id, models))
    _, pooled = cache.get("pooled models", key, lambda: (tuple(models), _pooled(models, cache)))
    return list(pooled)


def _pooled(models: Sequence[DeviceModel | None], cache: PlanCache) -> list[DeviceModel | None]:
    learnt = [
        (i, model)
        for i, model in enumerate(models)
        if model is not None and planner_curve(model.total).evidence() is not None
    ]
    curves = tuple(model.total for _, model in learnt)
    totals = cache.get("pooled curves", curves, lambda: pooled_curves(curves))
    pooled = list(models)
    # Noise may suggest that calls cost something on one of them.
    calls = [model.call_seconds for _, model in learnt]
    call = statistics.median_low(calls) if calls else 0.0
    for (i, model), total in zip(learnt, totals, strict=True):
        pooled[i] = replace(model, total=total, call_seconds=call)
    return pooled


def scaled(model: DeviceModel, factor: float) -> DeviceModel:
    total = None if factor == 1.0 else planner_curve(model.total).scaled(factor)
    return model if total is None else replace(model, total=total)


# ---- races


def first_race(devices: Sequence[Assignment]) -> PlannedRace | None:
    candidate = devices[0].candidate
    share = min(each.plan.share for each in devices)
    if candidate is None or not candidate.can_race or share < MIN_RACE_UNITS:
        return None
    if any(each.model is not None for each in devices):
        return None
    rivals = [name for name in candidate.models if name != devices[0].variant][: share - 1]
    return PlannedRace(tuple(rivals), FIRST_ROUNDS) if rivals else None


def rounds_of(ratios: Sequence[float], *, is_first: bool) -> int:
    """`ratios`: times of the rivals over that of the best."""
    if is_first or max(ratios) > 1.25:
        return FIRST_ROUNDS
    return max(FIRST_ROUNDS, MAX_RACE_CHUNKS // (1 + len(ratios)))


def standing(record: RaceRecord, best: str, names: Sequence[str]) -> str:
    behind = {name: c for name in names if name != best and (c := record.compare(name, best))}
    if not behind:
        return ""
    parts = [
        f"{name} takes {behind[name].ratio:.2f} times as long"
        for name in sorted(behind, key=lambda name: behind[name].mean)
    ]
    races = counted(max(comparison.races for comparison in behind.values()), "race")
    return f"{best} is the fastest in {races}: {', '.join(parts)}"
