"""The variant of each device: the fastest measured one, with bounded exploration.

Equal CPU devices share their measurements: one curve for all of them, times a factor for each
(`models.evidence.equal_cores`). Until every variant has been measured on some device, each device
tries a different one (a single device every other run): two cores measure four variants in two
runs, and are balanced from the fourth on. A variant whose times may be outliers is retried much
later, on one device at a time, which costs a job little, until two tries agree. It is also retried
if loads have become much larger or smaller than its measured ones, or if its slowdown is only
presumed from another variant on the same device. Devices other than cores use the first variant.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hetsched.models import DeviceModel
from hetsched.models.curves.curve import planner_curve
from hetsched.models.evidence.confidence import MAX_MIDDLE_RATIO
from hetsched.models.evidence.equal_cores import pooled_curves
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.records import Candidate

MAX_EQUAL_TIME_RATIO = 1.03
"""Variants whose times differ by less count as equally fast: with noisy runs, choosing between
them would only change the split each time. Arbitrary."""
MAX_RETRY_TIME_RATIO = 2.0
"""Ratio to the best time up to which a variant is retried: a single measurement beside a busy
neighbour may be that far off. Arbitrary."""
MIN_TRUSTED_RUNS = 3
"""Runs after which a variant's time is trusted even if no two agree. Arbitrary."""
RUNS_PER_RETRY = 8
"""Runs of the best variant per retry of one that is nearly as fast. Arbitrary."""
MAX_SIMILAR_LOAD_RATIO = 4.0
"""Runs of loads that differ by less are comparable. Arbitrary."""
RUNS_PER_FIRST_TRY = 2
"""Runs of the best variant per try of one never tried at a similar load; with fewer, a core whose
share stays far from the expected one would keep trying. Arbitrary."""


@dataclass(frozen=True)
class VariantChoice:
    """A variant with its model, or an equal device's model if this one never ran the variant."""

    variant: str
    model: DeviceModel | None
    is_exploring: bool = False


def choose_variants(
    candidates: Sequence[Candidate], units: float, cache: PlanCache | None = None
) -> list[VariantChoice]:
    """Return one choice for each candidate, in their order.

    Parameters
    ----------
    candidates : sequence of Candidate
    units : float
        Their mean share. Each is evaluated at a share proportional to its speed.
    cache : PlanCache, optional
    """
    cache = PlanCache() if cache is None else cache
    shares = _expected_shares(candidates, units)
    groups: dict[object, list[int]] = {}
    for index, candidate in enumerate(candidates):
        info = candidate.info
        single = -1 if info.is_core else index
        groups.setdefault((single, info.identity, tuple(candidate.models)), []).append(index)
    choices: dict[int, VariantChoice] = {}
    for indices in groups.values():
        members = [candidates[index] for index in indices]
        share = statistics.fmean(shares[index] for index in indices)
        choices.update(zip(indices, _choose_for_group(members, share, cache), strict=True))
    return [choices[index] for index in range(len(candidates))]


def _expected_shares(candidates: Sequence[Candidate], units: float) -> list[float]:
    """Return shares in proportion to the speeds at `units`; the mean share without a speed."""
    best_seconds = [
        min(
            (_rough_seconds(model, units) for model in candidate.models.values() if model),
            default=None,
        )
        for candidate in candidates
    ]
    speeds = [1 / seconds for seconds in best_seconds if seconds]
    if not speeds:
        return [units] * len(candidates)
    mean = statistics.fmean(speeds)
    return [units / seconds / mean if seconds else units for seconds in best_seconds]


def _rough_seconds(model: DeviceModel, units: float) -> float:
    """Return the seconds of `units`; with a link those of the slowest phase."""
    if not model.link:
        return float(model.total.time(units))
    phases = (model.h2d, model.compute, model.d2h)
    return max(float(phase.time(units)) for phase in phases if phase is not None)


def _choose_for_group(
    members: Sequence[Candidate], units: float, cache: PlanCache
) -> list[VariantChoice]:
    names = list(members[0].models)
    if not members[0].info.is_core:
        return [VariantChoice(names[0], members[0].models[names[0]])]
    runs = {name: max(m.run_counts.get(name, 0) for m in members) for name in names}
    seconds = _measured_seconds(members, names, units)
    if not seconds:
        order = sorted(names, key=lambda name: runs[name])  # stable: then by preference
        return [VariantChoice(order[i % len(order)], None, True) for i in range(len(members))]
    best = _best(seconds, runs)
    choices = [VariantChoice(best, model) for model in _models(members, best, units, cache)]
    for index, name in _explorers(members, best, seconds, runs, units):
        choices[index] = VariantChoice(name, _models(members, name, units, cache)[index], True)
    return choices


def _measured_seconds(
    members: Sequence[Candidate], names: Sequence[str], units: float
) -> dict[str, float]:
    """Return variant -> seconds of `units` on the fastest member; only variants with a model."""
    seconds = {}
    for name in names:
        models = {id(m.models[name]): m.models[name] for m in members}.values()
        times = [float(model.total.time(units)) for model in models if model is not None]
        if times:
            seconds[name] = min(times)
    return seconds


def _best(seconds: dict[str, float], runs: dict[str, int]) -> str:
    """Return the fastest variant; of equally fast ones the one with the most runs."""
    limit = MAX_EQUAL_TIME_RATIO * min(seconds.values())
    equally_fast = [name for name in seconds if seconds[name] <= limit]
    return max(equally_fast, key=lambda name: (runs[name], -seconds[name]))


def _explorers(
    members: Sequence[Candidate],
    best: str,
    seconds: dict[str, float],
    runs: dict[str, int],
    units: float,
) -> list[tuple[int, str]]:
    """Return the variant to try by index of the member that tries it."""
    unmeasured = [n for n in runs if n not in seconds and runs[n] < MIN_TRUSTED_RUNS]
    if unmeasured:
        if len(members) == 1 and sum(runs.values()) % 2:
            return []
        # Members that have measured the best variant explore first, while the others measure it.
        order = sorted(range(len(members)), key=lambda i: (members[i].models[best] is None, -i))
        return list(zip(order, unmeasured, strict=False))
    similar_runs = {name: _trusted_runs(members, name, units) for name in runs}
    retried = _variant_to_retry(best, seconds, runs, similar_runs)
    if retried is None:
        return []
    # A member that hasn't run it yet goes first: the others' times may be outliers.
    fewest = min(range(len(members)), key=lambda i: members[i].run_counts.get(retried, 0))
    return [(fewest, retried)]


def _variant_to_retry(
    best: str, seconds: dict[str, float], runs: dict[str, int], similar_runs: dict[str, int]
) -> str | None:
    """Return the variant to retry, if any.

    `similar_runs`: runs of each variant at loads like the expected one.
    """
    for name in sorted(seconds, key=lambda name: seconds[name]):
        is_new_load = similar_runs[best] > 0 and similar_runs[name] == 0
        interval = RUNS_PER_FIRST_TRY if is_new_load else RUNS_PER_RETRY
        is_due = similar_runs[name] < MIN_TRUSTED_RUNS and runs[best] >= interval * runs[name]
        if name != best and is_due and seconds[name] <= MAX_RETRY_TIME_RATIO * seconds[best]:
            return name
    return None


def _trusted_runs(members: Sequence[Candidate], name: str, units: float) -> int:
    """Return runs of `name` at loads like `units` on any member; enough once two agree.

    All runs if a model keeps no observations; none if its time is only presumed.
    """
    runs, paces = 0, []
    for member in members:
        model, member_runs = member.models[name], member.run_counts.get(name, 0)
        evidence = None if model is None else planner_curve(model.total).evidence()
        if evidence is None:
            runs += member_runs
        elif not evidence.is_presumed:
            similar = _paces(evidence.times(), units)
            runs += min(member_runs, len(similar))
            paces += similar
    agree = len(paces) > 1 and max(paces) < MAX_MIDDLE_RATIO * min(paces)
    return max(runs, MIN_TRUSTED_RUNS) if agree else runs


def _paces(times: dict[float, list[float]], units: float) -> list[float]:
    """Return the seconds per unit of each observation at a load like `units`."""
    return [
        seconds / size
        for size, observed in times.items()
        if units / MAX_SIMILAR_LOAD_RATIO <= size <= units * MAX_SIMILAR_LOAD_RATIO
        for seconds in observed
    ]


def _models(
    members: Sequence[Candidate], name: str, units: float, cache: PlanCache
) -> list[DeviceModel | None]:
    """Return each member's model of `name`, with the measurements of all members.

    A member that hasn't run it yet gets the median model of its equals, scaled by its slowness
    with other variants.
    """
    models = pooled_models([member.models[name] for member in members], cache)
    measured = [model for model in models if model is not None]
    if not measured or len(measured) == len(models):
        return models
    by_speed = sorted(measured, key=lambda model: float(model.total.time(units)))
    median = by_speed[(len(measured) - 1) // 2]
    return [
        _scaled(median, _slowness(members, i, units, cache)) if model is None else model
        for i, model in enumerate(models)
    ]


def pooled_models(
    models: Sequence[DeviceModel | None], cache: PlanCache | None = None
) -> list[DeviceModel | None]:
    """Return the models of equal devices, their totals fitted to the observations of all.

    Models that keep no observations are returned unchanged.

    Parameters
    ----------
    models : sequence of DeviceModel or None
        Of one variant, one per device.
    cache : PlanCache, optional
    """
    cache = PlanCache() if cache is None else cache
    learnt = [
        (i, model)
        for i, model in enumerate(models)
        if model is not None and planner_curve(model.total).evidence() is not None
    ]
    curves = tuple(model.total for _, model in learnt)
    totals = cache.pooled_curves.get_or_compute(curves, lambda: pooled_curves(curves))
    pooled = list(models)
    for (i, model), total in zip(learnt, totals, strict=True):
        pooled[i] = replace(model, total=total)
    return pooled


def _slowness(members: Sequence[Candidate], index: int, units: float, cache: PlanCache) -> float:
    """Return one member's time relative to its equals': the median over its variants."""
    ratios = []
    for name in members[index].models:
        models = pooled_models([member.models[name] for member in members], cache)
        model = models[index]
        if model is not None:
            times = [float(other.total.time(units)) for other in models if other is not None]
            ratios.append(float(model.total.time(units)) / statistics.median_low(times))
    return statistics.median(ratios) if ratios else 1.0


def _scaled(model: DeviceModel, factor: float) -> DeviceModel:
    total = None if factor == 1.0 else planner_curve(model.total).scaled(factor)
    return model if total is None else replace(model, total=total)
