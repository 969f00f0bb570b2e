"""Variants of a core team: which may be fast on it, and which to try. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hetsched.models.curves.curve import planner_curve
from hetsched.planner.records import Candidate
from hetsched.planner.variants import (
    MAX_EQUAL_TIME_RATIO,
    MAX_RETRY_TIME_RATIO,
    MAX_SIMILAR_LOAD_RATIO,
    MIN_TRUSTED_RUNS,
)

MAX_CORE_TIME_RATIO = 1.25
"""Maximum ratio of a variant's time to the fastest one's on a core for it to be tried on a team
(FFTW's planning alone takes 10 s for 4096x4096). Arbitrary."""


def candidate_variants(
    team: Candidate, candidates: Sequence[Candidate], units: float
) -> list[str]:
    """Return variants that may be fast on a team, the fastest on single cores first.

    Slow ones are included if measured on the team itself.
    """
    members = [c for c in candidates if c.info.name in team.info.members]
    seconds: dict[str, float] = {}
    for name in team.models:
        models = [member.models.get(name) for member in members]
        times = [float(model.total.time(units)) for model in models if model is not None]
        if times:
            seconds[name] = min(times)
    limit = MAX_CORE_TIME_RATIO * min(seconds.values(), default=0.0)
    fast = [name for name in seconds if team.models[name] or seconds[name] <= limit]
    return sorted(fast, key=lambda name: seconds[name]) or list(team.models)


def best_variant(team: Candidate, names: Sequence[str], units: float) -> str:
    """Return the fastest variant on the team; without measurements the first."""
    seconds = {}
    for name in names:
        model = team.models[name]
        if model is not None:
            seconds[name] = float(model.total.time(units))
    limit = MAX_EQUAL_TIME_RATIO * min(seconds.values(), default=0.0)
    equally_fast = [name for name in seconds if seconds[name] <= limit]
    if not equally_fast:
        return names[0]
    return max(equally_fast, key=lambda name: team.run_counts.get(name, 0))


def variant_to_try(team: Candidate, names: Sequence[str], units: int) -> str | None:
    """Return a variant without a trusted time at `units`; None if all have one."""
    best = best_variant(team, names, units)
    best_model = team.models[best]
    for name in [best, *names]:
        runs, model = similar_runs(team, name, units), team.models[name]
        is_hopeless = False
        if runs > 0 and model is not None and best_model is not None:
            limit = MAX_RETRY_TIME_RATIO * float(best_model.total.time(units))
            is_hopeless = float(model.total.time(units)) > limit
        if runs < MIN_TRUSTED_RUNS and not is_hopeless:
            return name
    return None


def similar_runs(team: Candidate, name: str, units: int) -> int:
    """Return the runs of a variant at loads like `units`; all runs if the model keeps no times."""
    model, runs = team.models[name], team.run_counts.get(name, 0)
    evidence = None if model is None else planner_curve(model.total).evidence()
    if evidence is None:
        return runs
    low, high = units / MAX_SIMILAR_LOAD_RATIO, units * MAX_SIMILAR_LOAD_RATIO
    return min(runs, sum(count for size, _, count in evidence.latest() if low <= size <= high))


def with_only(team: Candidate, variant: str) -> Candidate:
    """Return `team` with `variant` as its only one."""
    return replace(team, models={variant: team.models[variant]})
