"""How long a run takes in which variants race: longer than with the best one alone. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hetsched.planner.records import Assignment, JobPlan


def predicted_race(plan: JobPlan) -> JobPlan:
    """Return `plan` with the predictions that hold for its races; plans don't depend on them."""
    if plan.predicted_seconds is None or not plan.is_exploring:
        return plan
    slowdowns = [_slowdown(each) if each.rivals else 1.0 for each in plan.assignments]
    if all(slowdown == 1.0 for slowdown in slowdowns):
        return plan
    seconds = [
        None if each.predicted_seconds is None else each.predicted_seconds * slowdown
        for each, slowdown in zip(plan.assignments, slowdowns, strict=True)
    ]
    assignments = tuple(
        replace(each, predicted_seconds=predicted)
        for each, predicted in zip(plan.assignments, seconds, strict=True)
    )
    longest = max(predicted for predicted in seconds if predicted is not None)
    return replace(plan, assignments=assignments, predicted_seconds=longest)


def _slowdown(assignment: Assignment) -> float:
    """Return the time of a core's share over that of its first variant alone.

    A variant without measurements is presumed to be as fast. None counts as faster than the best
    one, whose times may contain contention that theirs don't.
    """
    share, first, candidate = assignment.plan.share, assignment.model, assignment.candidate
    if first is None or candidate is None or not share:
        return 1.0
    units: Counter[int] = Counter()
    for chunk in assignment.chunks:
        units[chunk.kernel] += chunk.count
    excess = 0.0
    for kernel, name in enumerate(assignment.rivals, 1):
        rival = candidate.models.get(name)
        if rival is not None:
            ratio = float(rival.time(share)) / float(first.time(share))
            excess += units[kernel] / share * max(ratio - 1.0, 0.0)
    return 1.0 + excess
