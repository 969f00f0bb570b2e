"""Single cores or a core team: the same job planned both ways, and the faster plan chosen.

A core team is a device that consists of the cores of other devices, its members. It computes a
chunk with one thread per core: for loads with fewer units than cores, or with units so large that
some cores would idle. A team and its members are never part of the same plan. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched.device import DeviceInfo
from hetsched.planner.device_sets.choice import SetChoice, candidates_of
from hetsched.planner.device_sets.set_state import SetState
from hetsched.planner.device_sets.team_variants import (
    best_variant,
    candidate_variants,
    similar_runs,
    variant_to_try,
    with_only,
)
from hetsched.planner.host_overhead import plan_with_host_overhead
from hetsched.planner.records import Candidate, JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.units import format_seconds

MIN_RELATIVE_GAIN = 0.05
"""Minimum gain for changing the present choice; a smaller one may be noise, and the choice would
alternate. Arbitrary."""
MIN_UNITS_PER_CORE = 4
"""With fewer units per core, cores idle at the end. Arbitrary."""
LARGE_UNIT_SECONDS = 0.020
"""Time of a unit on one core at which a team may pay for any number of units."""
MIN_JOB_SECONDS = 0.0005
"""Shorter jobs don't benefit from more threads, which meet several times in a unit. Arbitrary."""
MAX_TRIAL_TIME_RATIO = 1.25
"""Ratio of a team's time to its cores' at other loads above which it isn't tried. Arbitrary."""
START_SECONDS = 0.5
"""Start-up time of a team's process: a little more than measured. It keeps one core busy, while
jobs go on."""


@dataclass(frozen=True)
class _TeamOption:
    """The job planned with `team` instead of its `members`.

    `plan`: None if the team isn't considered, for the reason `rejection`. `start_seconds`: the
    cost of starting its process, per expected job. `is_trial`: it has too few measurements.
    """

    team: Candidate
    members: frozenset[str]
    rejection: str = ""
    plan: JobPlan | None = None
    start_seconds: float = 0.0
    is_trial: bool = False

    @property
    def name(self) -> str:
        return self.team.info.name


def plan_with_device_sets(
    load: int,
    candidates: Sequence[Candidate],
    current_devices: Collection[str] = (),
    runs: int = 0,
    *,
    state: SetState | None = None,
    machine: Sequence[DeviceInfo] = (),
    cache: PlanCache | None = None,
) -> JobPlan:
    """Plan as `plan_with_host_overhead`, with the set of devices that is fastest, or to be tried.

    Parameters
    ----------
    load : int, units, >= 1
    candidates : sequence of Candidate
    current_devices : collection of str
        Devices with a share at present: another choice must gain `MIN_RELATIVE_GAIN`.
    runs : int
        Jobs of this kind so far; as many more are expected. They must repay the start of a team
        whose process isn't running, so the decision costs at most twice the best in hindsight.
    state : SetState, optional
        What earlier plans of this kind of job found out about sets of devices; changed.
    machine : sequence of DeviceInfo
        All devices of the machine; those of the candidates are added.
    cache : PlanCache, optional

    Returns
    -------
    JobPlan
        `is_exploring` if a team is tried: `MIN_TRUSTED_RUNS` times at similar loads where it could
        pay.

    Raises
    ------
    DataError, UsageError
        As `plan_with_host_overhead`.
    """
    cache = PlanCache() if cache is None else cache
    state = SetState() if state is None else state
    machine = (*machine, *(candidate.info for candidate in candidates))
    teams = _teams(candidates)
    without_teams = _without(candidates, teams, None)
    works_as_team = any(team.info.name in current_devices for team in teams)
    choice = SetChoice(load, without_teams, state, machine, cache)
    single = choice.plan(tries_others=not works_as_team)
    if not teams or state.is_trying:
        return single
    options = [
        _option(load, candidates, teams, team, single, runs, machine, cache) for team in teams
    ]
    return _choose(single, options, current_devices)


def _choose(
    single: JobPlan, options: Sequence[_TeamOption], current_devices: Collection[str]
) -> JobPlan:
    """Return the plan of the single cores, or that of a team which is faster or to be tried."""
    trial = next((option for option in options if option.is_trial), None)
    chosen = trial or _fastest(single, options, current_devices)
    plan = single if chosen is None or chosen.plan is None else chosen.plan
    curves = dict(single.curves)
    for option in options:
        curves.update({} if option.plan is None else option.plan.curves)
    curves.update(plan.curves)
    reasons = (*plan.reasons, *_reasons(single, options, chosen))
    is_exploring = plan.is_exploring or trial is not None
    return replace(plan, reasons=reasons, curves=curves, is_exploring=is_exploring)


def plan_fixed_shares(
    load: int,
    candidates: Sequence[Candidate],
    fixed_shares: Mapping[str, int],
    *,
    device_set: Collection[str] | None = None,
    machine: Sequence[DeviceInfo] = (),
    cache: PlanCache | None = None,
) -> JobPlan:
    """Plan the chunks of `fixed_shares`, of a team or of its members.

    `device_set`: the devices that may have a share besides those that have one; None: all.

    Parameters and errors: as for `plan_with_host_overhead`.
    """
    cache = PlanCache() if cache is None else cache
    teams = _teams(candidates)
    working = next((team for team in teams if fixed_shares.get(team.info.name)), None)
    remaining = _without(candidates, teams, working)
    machine = (*machine, *(candidate.info for candidate in candidates))
    if working is None and device_set is not None:
        remaining = [
            candidate
            for candidate in remaining
            if candidate.info.name in device_set or fixed_shares.get(candidate.info.name)
        ]
    remaining = candidates_of([c.info for c in remaining], remaining, machine)
    if working is not None:
        units = fixed_shares[working.info.name]
        best = best_variant(working, candidate_variants(working, candidates, units), units)
        name = working.info.name
        remaining = [with_only(c, best) if c.info.name == name else c for c in remaining]
    return plan_with_host_overhead(load, remaining, fixed_shares, cache=cache)


def _teams(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the teams with members among the candidates; others are treated like any device."""
    names = {candidate.info.name for candidate in candidates}
    return [c for c in candidates if c.models and names.intersection(c.info.members)]


def _without(
    candidates: Sequence[Candidate], teams: Sequence[Candidate], working: Candidate | None
) -> list[Candidate]:
    """Return the candidates that may work together with `working`, without other teams."""
    excluded = {team.info.name for team in teams if team is not working}
    if working is not None:
        excluded.update(working.info.members)
    return [candidate for candidate in candidates if candidate.info.name not in excluded]


def _option(
    load: int,
    candidates: Sequence[Candidate],
    teams: Sequence[Candidate],
    team: Candidate,
    single: JobPlan,
    runs: int,
    machine: Sequence[DeviceInfo],
    cache: PlanCache,
) -> _TeamOption:
    names = {candidate.info.name for candidate in candidates}
    option = _TeamOption(team, frozenset(names.intersection(team.info.members)))
    rejection = _rejection(single, option.members)
    if rejection or single.predicted_seconds is None:
        return replace(option, rejection=rejection)
    remaining = _without(candidates, teams, team)
    participants = candidates_of([c.info for c in remaining], remaining, machine)

    def plan_with(variant: str) -> JobPlan:
        chosen = [with_only(c, variant) if c.info.name == option.name else c for c in participants]
        return plan_with_host_overhead(load, chosen, cache=cache)

    variants = candidate_variants(team, candidates, load)
    variant = best_variant(team, variants, load)
    plan = plan_with(variant)
    start_seconds = START_SECONDS / team.info.threads / max(runs, 1) if team.needs_start else 0.0
    untried = _variant_on_trial(team, variants, variant, plan, single.predicted_seconds)
    if untried is None:
        return replace(option, plan=plan, start_seconds=start_seconds)
    max_gain = single.predicted_seconds * (1 - 1 / team.info.threads)
    if start_seconds > max_gain:
        return replace(option, rejection="starting it does not pay off for so few jobs yet")
    if untried != variant:
        plan = plan_with(untried)
    return replace(option, plan=plan, is_trial=True)


def _variant_on_trial(
    team: Candidate, variants: Sequence[str], best: str, plan: JobPlan, single_seconds: float
) -> str | None:
    """Return the variant that the team should try now; None: well measured, or too slow."""
    shares = (a.plan.share for a in plan.assignments if a.device == team.info.name)
    share = next(shares, 0)
    time_ratio = _seconds(plan) / single_seconds  # infinite: no measurements
    open_to_try = variants if time_ratio < 1 else [best]
    untried = variant_to_try(team, open_to_try, share) if share else None
    was_slow = MAX_TRIAL_TIME_RATIO < time_ratio < math.inf
    if untried and was_slow and not similar_runs(team, best, share):
        return None
    return untried


def _rejection(single: JobPlan, members: frozenset[str]) -> str:
    """Return why a team of `members` isn't considered; empty if it is."""
    if single.predicted_seconds is None:
        return "its cores must be measured first"
    if single.predicted_seconds < MIN_JOB_SECONDS:
        return "the job is too short for several threads"
    units = sum(a.plan.share for a in single.assignments if a.device in members)
    curves = [single.curves[name] for name in members if name in single.curves]
    longest = max((float(curve.time(1.0)) for curve in curves), default=LARGE_UNIT_SECONDS)
    if units >= MIN_UNITS_PER_CORE * len(members) and longest < LARGE_UNIT_SECONDS:
        return "there are enough small units for all of its cores"
    return ""


def _fastest(
    single: JobPlan, options: Sequence[_TeamOption], current_devices: Collection[str]
) -> _TeamOption | None:
    """Return the fastest option, or the current one if the gain is too small; None: no team."""
    planned = [option for option in options if option.plan is not None]
    current = next((option for option in planned if option.name in current_devices), None)
    chosen, least = current, _seconds(single if current is None else current.plan)
    alternatives: list[_TeamOption | None] = [o for o in planned if o is not current]
    if current is not None:
        alternatives.append(None)
    for option in alternatives:
        seconds = _seconds(single)
        if option is not None:
            seconds = _seconds(option.plan) + option.start_seconds
        if seconds * (1 + MIN_RELATIVE_GAIN) < least:
            chosen, least = option, seconds
    return chosen


def _seconds(plan: JobPlan | None) -> float:
    """Return the predicted seconds; infinite without a prediction, to rule the plan out."""
    if plan is None or plan.predicted_seconds is None:
        return math.inf
    return plan.predicted_seconds


def _reasons(
    single: JobPlan, options: Sequence[_TeamOption], chosen: _TeamOption | None
) -> list[str]:
    """Return why devices outside the chosen plan have no share."""
    reasons = []
    for option in options:
        if option is chosen:
            faster = f"finishes sooner{_compared(option.plan, single)}"
            reason = f"{option.name} {'is tried instead' if option.is_trial else faster}"
            reasons += [f"{member}: no share, {reason}" for member in sorted(option.members)]
        elif option.plan is None:
            reasons.append(f"{option.name}: no share, {option.rejection}")
        else:
            reason = f"its cores finish sooner separately{_compared(single, option.plan)}"
            reasons.append(f"{option.name}: no share, {reason}")
    return reasons


def _compared(plan: JobPlan | None, other: JobPlan | None) -> str:
    if plan is None or other is None:
        return ""
    if plan.predicted_seconds is None or other.predicted_seconds is None:
        return ""
    seconds = format_seconds(plan.predicted_seconds)
    return f" ({seconds} against {format_seconds(other.predicted_seconds)})"
