"""Trials of chunk sizes: near a step of a kernel, sizes that nobody measured may be faster. Pure.

Between a fast and a slow size a learnt phase rises linearly, so that the last fast size looks too
slow to be used, and is never measured. If the best plan by the optimistic curves
(`PhaseCurve.optimistic`) gains enough over the present one, a few chunks of its sizes take the
place of others in the next run: they are known then, whatever they cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hetsched.models import DeviceModel, SpeedFunction
from hetsched.models.curves.phases.phase_curve import PhaseCurve
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.plans.device_plan import DevicePlan, fits
from hetsched.plans.recurrence import price
from hetsched.plans.ring_search import best_plan

MIN_GAIN = 0.01
"""Relative gain of the optimistic plan for which sizes are tried: a whole plan of such sizes must
gain more (`totals.MIN_GAIN`)."""
MAX_COST, MAX_LATE_COST = 0.15, 0.01
"""Extra time of a run with a trial: predicted in the first `EARLY_RUNS` runs, and later that of
the worst case, in which the sizes tried are right after a step."""
EARLY_RUNS = 5
"""Runs that may all contain a trial; later at most every other one does."""
MAX_TRIALS = 8
"""Runs with a trial for each kind of job and load."""
MAX_SIZES = 3
"""Sizes in one trial: the most promising one and bisections towards the size known to be fast."""
MIN_SIZE_GAIN = 0.02
"""Relative gain of the optimistic time of a size that is worth measuring."""
MAX_SHARE = 4096
"""Largest share, units, for a trial: its search takes as long as a plan's."""


@dataclass
class TrialState:
    """The trials of one kind of job so far; changed by `with_size_trials`."""

    trials: int = 0
    last_run: int = 0


def with_size_trials(
    plan: JobPlan, candidates: Sequence[Candidate], state: TrialState, run: int
) -> list[Candidate]:
    """Return the candidates of `plan`, those with a trial with its chunks; [] if there are none.

    Parameters
    ----------
    plan : JobPlan
        The plan of run `run`, from 1, without trials.
    candidates : sequence of Candidate
    state : TrialState
        Changed if there is a trial.
    run : int
    """
    is_late = run > EARLY_RUNS
    if state.trials >= MAX_TRIALS or (is_late and run - state.last_run < 2):
        return []
    max_cost = MAX_LATE_COST if is_late else MAX_COST
    trials: dict[str, DevicePlan] = {}
    for assignment in plan.assignments:
        trial = _trial(assignment, max_cost, is_late=is_late)
        if trial is not None:
            trials[assignment.device] = trial
    if not trials:
        return []
    state.trials, state.last_run = state.trials + 1, run
    return [replace(c, size_trial=trials.get(c.info.name)) for c in candidates]


def _trial(assignment: Assignment, max_cost: float, *, is_late: bool) -> DevicePlan | None:
    """Return the plan of this device with chunks of sizes to be measured; None: nothing to try."""
    model, candidate, plan = assignment.model, assignment.candidate, assignment.plan
    if model is None or candidate is None or not candidate.info.link:
        return None
    if candidate.schedule != "best":
        return None
    if plan.share > MAX_SHARE or len(plan.sub_distributions) != 1:
        return None
    hopeful = optimistic_model(model)
    if hopeful is None:
        return None
    memory, overlap = candidate.memory, candidate.overlap
    present = price(plan, model, overlap)
    best = best_plan(plan.share, hopeful, memory, overlap=overlap)
    if price(best, hopeful, overlap) > (1 - MIN_GAIN) * present:
        return None
    sizes = sizes_to_try(best, model, hopeful)
    judge = pessimistic_model(model) if is_late else model
    while sizes:
        trial = with_chunks(plan, sizes)
        if trial.chunks != plan.chunks and fits(trial, memory):
            cost = price(trial, judge, overlap) / present - 1
            if cost <= max_cost:
                return trial
        sizes = sizes[1:]
    return None


def optimistic_model(model: DeviceModel) -> DeviceModel | None:
    """Return the model with optimistic phases; None if it would be the same."""
    return _with_phases(model, PhaseCurve.optimistic)


def pessimistic_model(model: DeviceModel) -> DeviceModel:
    """Return the model with pessimistic phases."""
    return _with_phases(model, PhaseCurve.pessimistic) or model


def _with_phases(
    model: DeviceModel, change: Callable[[PhaseCurve], SpeedFunction | None]
) -> DeviceModel | None:
    """Return the model with other phases, where `change` returns one; None if nowhere."""
    compute, h2d, d2h = (
        change(phase) if isinstance(phase, PhaseCurve) else None
        for phase in (model.compute, model.h2d, model.d2h)
    )
    if compute is h2d is d2h is None:
        return None
    return replace(
        model, compute=compute or model.compute, h2d=h2d or model.h2d, d2h=d2h or model.d2h
    )


def sizes_to_try(best: DevicePlan, model: DeviceModel, hopeful: DeviceModel) -> tuple[int, ...]:
    """Return the size of `best` with most units that may be faster than `model` says, and below.

    Parameters
    ----------
    best : DevicePlan
        By `hopeful`.
    model, hopeful : DeviceModel

    Returns
    -------
    tuple of int, units
        Descending: that size, and bisections between it and the next smaller size measured.
    """
    phases = [
        (learnt, hoped)
        for learnt, hoped in (
            (model.compute, hopeful.compute),
            (model.h2d, hopeful.h2d),
            (model.d2h, hopeful.d2h),
        )
        if isinstance(learnt, PhaseCurve) and hoped is not None and hoped is not learnt
    ]
    units: Counter[int] = Counter()
    for size in best.chunks:
        units[size] += size
    for size, _ in units.most_common():
        for learnt, hoped in phases:
            known = [float(point[0]) for point in learnt.points]
            gain = 1 - float(hoped.time(size)) / float(learnt.time(size))
            if gain > MIN_SIZE_GAIN and size not in known:
                low = max((x for x in known if x < size), default=0.0)
                return _bisections(int(low), size)
    return ()


def _bisections(low: int, size: int) -> tuple[int, ...]:
    sizes = [size]
    while len(sizes) < MAX_SIZES and sizes[-1] - low >= 2:
        sizes.append((low + sizes[-1] + 1) // 2)
    return tuple(dict.fromkeys(sizes))


def with_chunks(plan: DevicePlan, sizes: Sequence[int]) -> DevicePlan:
    """Return `plan` with these chunks, and a smaller rest, in place of some in its middle.

    Parameters
    ----------
    plan : DevicePlan
        With one sub-distribution.
    sizes : sequence of int, units
        As many of them as leave at least half of the share unchanged.
    """
    chunks = list(plan.chunks)
    while sizes and 2 * sum(sizes) > plan.share:
        sizes = sizes[1:]
    needed = sum(sizes)
    start = end = len(chunks) // 2
    removed = 0
    while removed < needed:
        if end < len(chunks):
            end += 1
        else:
            start -= 1
        removed = sum(chunks[start:end])
    rest = removed - needed
    chunks[start:end] = [*sizes, *([rest] if rest else [])]
    return replace(plan, sub_distributions=(tuple(chunks),))


def marked_trials(plan: JobPlan) -> JobPlan:
    """Return `plan`, made for candidates of `with_size_trials`, with its trials marked."""
    assignments = []
    reasons = list(plan.reasons)
    for assignment in plan.assignments:
        candidate = assignment.candidate
        is_trial = candidate is not None and candidate.size_trial is not None
        assignments.append(replace(assignment, tries_sizes=is_trial))
        if is_trial:
            reasons.append(f"{assignment.device}: some chunks measure sizes that may be faster")
    return replace(plan, assignments=tuple(assignments), reasons=tuple(reasons))
