"""Cores one by one, or as a team: the same job planned both ways, and the sooner end wins.

A core team is a device that has the cores of others, its members, and computes a chunk with one
thread on each: for loads with fewer units than cores, or with so big ones that whole units leave
cores waiting. It and its members never take part in the same plan. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched.models import PiecewiseLinear
from hetsched.planner.host_overhead import plan_fed
from hetsched.planner.records import Candidate, JobPlan
from hetsched.planner.variants import ALIKE, CLOSE, SAME, TRIES
from hetsched.units import format_seconds

MARGIN = 0.05
"""What another way must gain before the present one is left: less may be noise, and would change
each time. Arbitrary."""
FEW = 4
"""Units a core, below which whole units leave cores waiting at the end. Arbitrary."""
BIG = 0.020
"""Seconds of one unit on a core from which on its team may pay, however many there are."""
WORTH = 0.005
"""Seconds of a job below which more threads are no use. Arbitrary."""
LIKELY = 1.25
"""What is slower than this isn't tried: a variant on one core over the fastest there (FFTW's plans
alone take 10 s for 4096x4096), a team that was measured at other loads. Arbitrary."""
START = 0.5
"""Seconds to start a team's process: a little more than measured."""


@dataclass(frozen=True)
class _Way:
    """One way to do it: by `team` instead of its `members`.

    `plan`: None where it isn't even weighed, for the reason `why`. `extra`: seconds that starting
    it costs each job that is to come. `trial`: it isn't known well.
    """

    team: Candidate
    members: frozenset[str]
    why: str = ""
    plan: JobPlan | None = None
    extra: float = 0.0
    trial: bool = False


def plan_best(
    load: int, candidates: Sequence[Candidate], now: Collection[str] = (), runs: int = 0
) -> JobPlan:
    """As `plan_fed`, with the cores one by one or with one of their teams.

    Parameters
    ----------
    load : int, units, >= 1
    candidates : sequence of Candidate
    now : collection of str
        Devices that have the shares at present: only a way that gains `MARGIN` is better.
    runs : int
        Such jobs that there have been; as many are expected to come. A team whose process would
        first have to be started must be worth that to them: starting it or not then costs at most
        twice what would have been best in hindsight.

    Returns
    -------
    JobPlan
        `exploring` where a team is tried: where it could pay, and `TRIES` times at such loads.

    Raises
    ------
    DataError, UsageError
        As `plan_fed`.
    """
    teams = _teams(candidates)
    if not teams:
        return plan_fed(load, candidates)
    single = plan_fed(load, _without(candidates, teams, None))
    ways = [_weighed(load, candidates, teams, team, single, runs) for team in teams]
    tried = next((way for way in ways if way.trial), None)
    chosen = tried or _soonest(single, ways, now)
    plan = single if chosen is None or chosen.plan is None else chosen.plan
    curves = dict(single.curves)
    for way in ways:
        curves.update({} if way.plan is None else way.plan.curves)
    reasons = [*plan.reasons, *_reasons(single, ways, chosen)]
    exploring = plan.exploring or tried is not None
    curves.update(plan.curves)
    return replace(plan, reasons=tuple(reasons), curves=curves, exploring=exploring)


def plan_held(load: int, candidates: Sequence[Candidate], held: Mapping[str, int]) -> JobPlan:
    """As `plan_fed` with shares that are held: those of a team, or of its members."""
    teams = _teams(candidates)
    working = next((team for team in teams if held.get(team.info.name)), None)
    left = _without(candidates, teams, working)
    if working is None:
        return plan_fed(load, left, held)
    units = held[working.info.name]
    best = _best(working, _worthwhile(working, candidates, units), units)
    return plan_fed(load, [_only(c, best) if c is working else c for c in left], held)


def _teams(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The teams with members among the candidates; one without is a device like others."""
    names = {candidate.info.name for candidate in candidates}
    return [c for c in candidates if c.models and names.intersection(c.info.members)]


def _without(
    candidates: Sequence[Candidate], teams: Sequence[Candidate], working: Candidate | None
) -> list[Candidate]:
    """Those that may take part when `working` does, and no other team."""
    idle = {team.info.name for team in teams if team is not working}
    if working is not None:
        idle.update(working.info.members)
    return [candidate for candidate in candidates if candidate.info.name not in idle]


def _weighed(
    load: int,
    candidates: Sequence[Candidate],
    teams: Sequence[Candidate],
    team: Candidate,
    single: JobPlan,
    runs: int,
) -> _Way:
    names = {candidate.info.name for candidate in candidates}
    way = _Way(team, frozenset(names.intersection(team.info.members)))
    why = _why_not(single, way.members)
    if why or single.predicted_seconds is None:
        return replace(way, why=why)
    others = _without(candidates, teams, team)
    worthwhile = _worthwhile(team, candidates, load)

    def plan(variant: str) -> JobPlan:
        return plan_fed(load, [_only(c, variant) if c is team else c for c in others])

    variant = _best(team, worthwhile, load)
    found = plan(variant)
    share = next((a.plan.share for a in found.assignments if a.device == team.info.name), 0)
    likely = _seconds(found) / single.predicted_seconds  # infinite: never measured
    open_to_try = worthwhile if likely < 1 else [variant]
    untried = _untried(team, open_to_try, share) if share else None
    if untried and LIKELY < likely < math.inf and not _seen(team, variant, share):
        untried = None  # it was slow at other loads
    extra = START / max(runs, 1) if team.asleep else 0.0
    if untried is None:
        return replace(way, plan=found, extra=extra)
    most = single.predicted_seconds * (1 - 1 / team.info.threads)
    if extra > most:
        return replace(way, why="it is not worth starting for so few jobs yet")
    return replace(way, plan=found if untried == variant else plan(untried), trial=True)


def _why_not(single: JobPlan, members: frozenset[str]) -> str:
    """Why a team of `members` need not be thought of."""
    if single.predicted_seconds is None:
        return "its cores are measured first"
    if single.predicted_seconds < WORTH:
        return "the job is too short for threads"
    units = sum(one.plan.share for one in single.assignments if one.device in members)
    known = [single.curves[name] for name in members if name in single.curves]
    longest = max((float(curve.time(1.0)) for curve in known), default=BIG)
    if units >= FEW * len(members) and longest < BIG:
        return "there are small units enough for each of its cores"
    return ""


def _worthwhile(team: Candidate, candidates: Sequence[Candidate], units: float) -> list[str]:
    """Variants that a team might be fast with, the likely fastest first: as single cores are.

    And those that it knows.
    """
    members = [c for c in candidates if c.info.name in team.info.members]
    seconds: dict[str, float] = {}
    for name in team.models:
        models = [member.models.get(name) for member in members]
        known = [float(model.total.time(units)) for model in models if model is not None]
        if known:
            seconds[name] = min(known)
    least = min(seconds.values(), default=0.0)
    close = [name for name in seconds if team.models[name] or seconds[name] <= LIKELY * least]
    return sorted(close, key=lambda name: seconds[name]) or list(team.models)


def _best(team: Candidate, names: Sequence[str], units: float) -> str:
    """The variant that is fastest on the team; while it knows none, the first."""
    known = {}
    for name in names:
        model = team.models[name]
        if model is not None:
            known[name] = float(model.total.time(units))
    least = min(known.values(), default=0.0)
    as_fast = [name for name in known if known[name] <= SAME * least]
    return max(as_fast, key=lambda name: team.tried.get(name, 0)) if as_fast else names[0]


def _untried(team: Candidate, names: Sequence[str], units: int) -> str | None:
    """A variant that `units` were not yet run with often enough to believe its time."""
    best = _best(team, names, units)
    least = team.models[best]
    for name in [best, *names]:
        seen, model = _seen(team, name, units), team.models[name]
        hopeless = (
            seen > 0
            and model is not None
            and least is not None
            and float(model.total.time(units)) > CLOSE * float(least.total.time(units))
        )
        if seen < TRIES and not hopeless:
            return name
    return None


def _seen(team: Candidate, name: str, units: int) -> int:
    """Runs of a variant at loads like `units`; all of them where the model can't tell."""
    model, tried = team.models[name], team.tried.get(name, 0)
    if model is None or not isinstance(model.total, PiecewiseLinear):
        return tried
    return min(tried, model.total.observed(units / ALIKE, units * ALIKE))


def _only(team: Candidate, variant: str) -> Candidate:
    return replace(team, models={variant: team.models[variant]})


def _soonest(single: JobPlan, ways: Sequence[_Way], now: Collection[str]) -> _Way | None:
    """The way that ends soonest, the present one unless another gains enough; None: no team."""
    present = next((way for way in ways if way.team.info.name in now and way.plan), None)
    chosen, least = present, _seconds(single if present is None else present.plan)
    others: list[_Way | None] = [way for way in ways if way.plan and way is not present]
    for way in [*others, *([] if present is None else [None])]:
        seconds = _seconds(single) if way is None else _seconds(way.plan) + way.extra
        if seconds * (1 + MARGIN) < least:
            chosen, least = way, seconds
    return chosen


def _seconds(plan: JobPlan | None) -> float:
    """Infinite where nobody knows: then nothing says that it ends sooner."""
    if plan is None or plan.predicted_seconds is None:
        return math.inf
    return plan.predicted_seconds


def _reasons(single: JobPlan, ways: Sequence[_Way], chosen: _Way | None) -> list[str]:
    """Why those that are left out are."""
    found = []
    for way in ways:
        name = way.team.info.name
        if way is chosen:
            seconds = _against(way.plan, single)
            trying = f"{name} is tried instead" if way.trial else f"{name} ends sooner{seconds}"
            found += [f"{member}: no share, {trying}" for member in sorted(way.members)]
        elif way.plan is None:
            found.append(f"{name}: no share, {way.why}")
        else:
            sooner = f"its cores end sooner one by one{_against(single, way.plan)}"
            found.append(f"{name}: no share, {sooner}")
    return found


def _against(plan: JobPlan | None, other: JobPlan | None) -> str:
    if plan is None or other is None or plan.predicted_seconds is None:
        return ""
    if other.predicted_seconds is None:
        return ""
    mine, others = plan.predicted_seconds, other.predicted_seconds
    return f" ({format_seconds(mine)} against {format_seconds(others)})"
