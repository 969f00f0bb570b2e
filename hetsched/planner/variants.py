"""The variant of each device: on equal cores, those that race in the next run, and the best one.

Equal CPU devices share their measurements: one curve for all of them, times a factor for each
(`models.evidence.equal_cores`). They also race together (`planner.races`): all of them compute the
same chunk with the same variant, so that neighbours and moment are the same. Where a core's share
has too few units for a race, all cores use one variant in a run and another in the next. Devices
other than cores use the first variant.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched.models import DeviceModel
from hetsched.models.curves.curve import planner_curve
from hetsched.models.evidence.confidence import robust_median
from hetsched.models.evidence.equal_cores import pooled_curves
from hetsched.models.evidence.races import Race, RaceRecord
from hetsched.planner.races.decision import RaceDecision, decide, max_runs_of_rival
from hetsched.planner.races.standing import standing
from hetsched.planner.records import Candidate
from hetsched.planner.totals import PlanCache

MAX_EQUAL_TIME_RATIO = 1.03
"""Variants whose times differ by less count as equally fast: with noisy runs, choosing between
them would only change the split each time. Arbitrary."""
MAX_RETRY_TIME_RATIO = 2.0
"""Ratio to the best time up to which a variant is tried again: a single measurement beside a busy
neighbour may be that far off. Arbitrary."""
MIN_TRUSTED_RUNS = 3
"""Runs after which a variant's time is trusted even if no two agree. Arbitrary."""
MIN_RACE_UNITS = 2.0
"""Units of a core's share from which on two variants can take turns within a run."""
MAX_SIMILAR_LOAD_RATIO = 4.0
"""Runs of loads that differ by less are comparable. Arbitrary."""


@dataclass(frozen=True)
class VariantChoice:
    """A variant with its model, or an equal device's model if this one never ran the variant.

    Attributes
    ----------
    is_exploring : bool
        The variant isn't the best: it is measured in a run of its own.
    rivals : tuple of str
        Variants that race against it, in `rounds` rounds; the model is that of the mixture.
    standing : str
        What earlier races have shown, in words.
    """

    variant: str
    model: DeviceModel | None
    is_exploring: bool = False
    rivals: tuple[str, ...] = ()
    rounds: int = 0
    standing: str = ""


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
    has_choice = any(
        len(candidate.models) > 1 or None in candidate.models.values() for candidate in candidates
    )
    shares = _expected_shares(candidates, units) if has_choice else [units] * len(candidates)
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


def _choose_for_group(
    members: Sequence[Candidate], units: float, cache: PlanCache
) -> list[VariantChoice]:
    names = list(members[0].models)
    if not members[0].info.is_core or len(names) == 1:
        models = _models(members, names[0], units, cache)
        return [VariantChoice(names[0], model) for model in models]
    seconds = _measured_seconds(members, names, units)
    runs = {name: max(m.run_counts.get(name, 0) for m in members) for name in names}
    times = {name: _similar_paces(members, name, units) for name in names}
    record = members[0].races.similar(units)
    can_race = units >= MIN_RACE_UNITS
    if not can_race:
        record = _record_of_runs(names, times, units)
    decision = decide(
        names,
        record,
        max(runs.values()),
        _default(names, seconds, runs),
        _slow_variants(times) if can_race else _unmeasurable(runs, times),
    )
    if can_race:
        return _race_choices(members, decision, record, units, cache)
    if decision.is_repeat and runs[decision.rivals[0]] >= max_runs_of_rival(max(runs.values())):
        decision = RaceDecision(decision.best)  # its races have no numbers of runs
    return _choices_by_run(members, decision, times, units, cache)


def _race_choices(
    members: Sequence[Candidate],
    decision: RaceDecision,
    record: RaceRecord,
    units: float,
    cache: PlanCache,
) -> list[VariantChoice]:
    """Return the best variant with its rivals, as many as the units of a core allow."""
    rivals = decision.rivals[: int(units) - 1]
    ratios = (_expected_ratio(rival, decision.best, record, members[0]) for rival in rivals)
    factor = statistics.fmean([1.0, *ratios])
    text = standing(record, decision.best, list(members[0].models))
    return [
        VariantChoice(
            decision.best,
            None if model is None else _scaled(model, factor),
            rivals=rivals,
            rounds=decision.rounds,
            standing=text,
        )
        for model in _models(members, decision.best, units, cache)
    ]


def _expected_ratio(rival: str, best: str, record: RaceRecord, member: Candidate) -> float:
    """Return the time of `rival` relative to `best`, from races at other loads if need be."""
    ratio = record.expected_ratio(rival, best)
    return (member.races.expected_ratio(rival, best) or 1.0) if ratio is None else ratio


def _choices_by_run(
    members: Sequence[Candidate],
    decision: RaceDecision,
    times: Mapping[str, Sequence[float]],
    units: float,
    cache: PlanCache,
) -> list[VariantChoice]:
    """Return one variant for all members: loads too small for a race within a run."""
    racing = (decision.best, *decision.rivals)
    variant = min(racing, key=lambda name: len(times[name])) if decision.rivals else racing[0]
    is_trial = bool(decision.rivals)
    return [
        VariantChoice(variant, model, is_trial)
        for model in _models(members, variant, units, cache)
    ]


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


def _default(names: Sequence[str], seconds: Mapping[str, float], runs: Mapping[str, int]) -> str:
    """Return the fastest variant by its model; of equally fast ones the one with the most runs.

    Without measurements the first.
    """
    limit = MAX_EQUAL_TIME_RATIO * min(seconds.values(), default=0.0)
    equally_fast = [name for name in seconds if seconds[name] <= limit]
    return max(equally_fast, key=lambda name: (runs[name], -seconds[name]), default=names[0])


def _slow_variants(times: Mapping[str, Sequence[float]]) -> set[str]:
    """Return variants that enough runs have shown to be too slow for a race."""
    paces = {
        name: robust_median(measured)
        for name, measured in times.items()
        if len(measured) >= MIN_TRUSTED_RUNS
    }
    limit = MAX_RETRY_TIME_RATIO * min(paces.values(), default=0.0)
    return {name for name, pace in paces.items() if pace > limit}


def _unmeasurable(runs: Mapping[str, int], times: Mapping[str, Sequence[float]]) -> set[str]:
    """Return variants whose runs yield no times: they are always contended, for example."""
    return {name for name in runs if runs[name] >= MIN_TRUSTED_RUNS and not times[name]}


def _record_of_runs(
    names: Sequence[str], times: Mapping[str, Sequence[float]], units: float
) -> RaceRecord:
    """Return races made of runs with a single variant each: the n-th run of every variant."""
    count = max(map(len, times.values()), default=0)
    races = []
    for number in range(count):
        paces = {name: (times[name][number],) for name in names if number < len(times[name])}
        races.append(Race(number, units, paces))
    return RaceRecord(tuple(races))


def _similar_paces(members: Sequence[Candidate], name: str, units: float) -> list[float]:
    """Return the seconds per unit of `name` at loads like `units`, medians over the members."""
    by_member = []
    for member in members:
        model = member.models[name]
        evidence = None if model is None else planner_curve(model.total).evidence()
        if evidence is not None and not evidence.is_presumed:
            by_member.append(_paces(evidence.times(), units))
    longest = max(map(len, by_member), default=0)
    return [
        statistics.median(paces[i] for paces in by_member if i < len(paces))
        for i in range(longest)
    ]


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
    for (i, model), total in zip(learnt, totals, strict=True):
        cold = model.cold if total is model.total else model.cold.rebased(model.total, total)
        pooled[i] = replace(model, total=total, cold=cold)
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
