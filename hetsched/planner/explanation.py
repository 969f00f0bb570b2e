"""The explanation of a job: its plan compared with measurements, and with what else it could be.

All figures are computed from the plan, the models behind it, and the times of chunks on the
devices that ran them. Bounds, other splits, schedules and machines: by the models. Pure.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import msgspec

from hetsched.device import ChunkTimeline, ChunkTimes, Timeline
from hetsched.explain import (
    Alternative,
    DeviceExplanation,
    Explanation,
    PhaseSeconds,
    TimeBreakdown,
    WhatIf,
)
from hetsched.job import Schedule
from hetsched.models import PiecewiseLinear, SpeedFunction
from hetsched.partition import geometric
from hetsched.planner.assignment import longest_chunk
from hetsched.planner.job_planner import plan_job
from hetsched.planner.learning import DeviceRun
from hetsched.planner.neighbours import co_runners_of
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.totals import PlanCache, scheduled_plan
from hetsched.planner.variants import rough_seconds
from hetsched.plans import lower_bound, price, timeline
from hetsched.plans.bounds import ShareBounds
from hetsched.text import group_name, groups_of
from hetsched.units import counted, format_bytes, format_seconds

Span = tuple[float, float]
PRECISION = 1e-6
"""Relative error of a bound of all devices, which is never too large."""
LeastSeconds = Callable[[int], float]
"""Units, 1 or more -> the least seconds that they take on a device; rising."""


def explain_job(
    job: Explanation,
    plan: JobPlan,
    runs: Mapping[str, DeviceRun] | None = None,
    *,
    cache: PlanCache | None = None,
) -> Explanation:
    """Return `job`, which says only what it is, explained by its plan, and its runs if any.

    Chunks count for the device that ran them. A virtual clock starts with its device's first.
    """
    cache = PlanCache() if cache is None else cache
    lines = _measured_timelines(plan, runs or {})
    total = max((line.makespan for line in lines.values()), default=0.0)
    return msgspec.structs.replace(
        job,
        reasons=plan.reasons,
        seconds=total if lines else None,
        predicted_seconds=plan.predicted_seconds,
        bound=bound_of_plan(plan),
        schedule=next((c.schedule for c in plan.candidates if c.info.link), "best"),
        weighed=plan.weighed,
        devices=_devices(plan, lines, None if runs is None else total, runs or {}),
        alternatives=split_alternatives(plan, cache),
        what_if=what_if(plan, cache),
    )


def _devices(
    plan: JobPlan,
    lines: Mapping[str, Timeline],
    total: float | None,
    runs: Mapping[str, DeviceRun],
) -> tuple[DeviceExplanation, ...]:
    alternatives = schedule_alternatives(plan)
    devices = []
    for assignment in plan.assignments:
        device, candidate = assignment.device, assignment.candidate
        run, line = runs.get(device), lines.get(device)
        info = run.info if run is not None else candidate.info if candidate is not None else None
        chunks = () if run is None else run.chunks
        planned, bound = _planned_timeline(assignment), device_bound(assignment)
        # The prediction for a core's files includes copies without separate times.
        is_whole = candidate is not None and candidate.is_staged and not candidate.info.link
        phases = None if is_whole else planned
        model_runs = None
        if candidate is not None and assignment.model is not None:
            model_runs = candidate.run_counts.get(assignment.variant, 0)
        devices.append(
            DeviceExplanation(
                device=device,
                kind="" if info is None else info.kind,
                variant=assignment.variant,
                planned=assignment.plan.share,
                share=0 if run is None else run.share,
                pooled=assignment.pooled,
                taken=sum(units for units, times in chunks if times.taken),
                chunks=tuple((len(list(same)), n) for n, same in groupby(assignment.plan.chunks)),
                planned_chunks=len(assignment.plan.chunks),
                mode=assignment.plan.mode.value if info and info.link else "",
                slots=assignment.slots,
                chunk_reason=_chunk_reason(assignment, bound),
                call_reason=_call_reason(assignment),
                runs=model_runs,
                predicted_seconds=assignment.predicted_seconds,
                seconds=run.seconds if run is not None and chunks else None,
                predicted=None if phases is None else phase_seconds(phases),
                measured=None if line is None else phase_seconds(line),
                predicted_hidden=None if phases is None else hidden_fraction(phases),
                hidden=None if line is None else hidden_fraction(line),
                time_breakdown=None if total is None else time_breakdown(line, total),
                bound=bound,
                alternatives=alternatives.get(device, ()),
                units_per_call=max((times.units_per_call for _, times in chunks), default=0),
                late=sum(times.late for _, times in chunks),
                plan=planned,
                timeline=line,
            )
        )
    return tuple(devices)


# ---- reasons


def _chunk_reason(assignment: Assignment, bound: float | None) -> str:
    if assignment.candidate is None:
        return ""
    if assignment.candidate.info.link:
        return _linked_chunk_reason(assignment, assignment.candidate, bound)
    if assignment.rivals:
        names = ", ".join(assignment.variants)
        return f"variants take turns, to find the fastest on this machine: {names}"
    if assignment.pace is None:
        return "small chunks until there are measurements: a cancel waits for the running chunk"
    seconds = format_seconds(assignment.pace * assignment.max_chunk)
    tail = ""
    if assignment.tail is not None and assignment.model is not None:
        units = counted(assignment.tail.units, "unit")
        tail = f"; the cores take the last {units} when they are done, as their speeds vary"
    if len(assignment.chunks) == 1 and not tail:
        return f"one chunk, which takes only {seconds}"
    return f"chunks of at most {seconds}: a cancel or a lost device costs one{tail}"


def _linked_chunk_reason(assignment: Assignment, candidate: Candidate, bound: float | None) -> str:
    limit, schedule = candidate.demand.limit, candidate.schedule
    predicted, memory = assignment.predicted_seconds, ""
    if limit is not None:
        memory = f", {format_bytes(assignment.slot_memory)} of {format_bytes(limit)}"
    if predicted is None or not bound:
        later = "" if schedule == "best" else f"; then {schedule}, as asked"
        return f"factored by two, so that one run measures several sizes{memory}{later}"
    above = f"{100 * max(0.0, predicted / bound - 1):.1f} % above the bound{memory}"
    if schedule != "best":
        return f"{schedule}, as asked: {above}"
    return f"the best plan found for its phases and memory, {above}"


def _call_reason(assignment: Assignment) -> str:
    seconds, model = assignment.predicted_seconds, assignment.model
    call = 0.0 if model is None else model.call_seconds
    if not call or not seconds:
        return ""
    count = len(assignment.plan.chunks)
    part = 100 * call * count / seconds
    calls = f"{counted(count, 'call')} take {part:.1f} % of its time"
    limit = f", with chunks of up to {format_seconds(longest_chunk(call))}" if count > 1 else ""
    return f"each call of the kernel costs {format_seconds(call)}; {calls}{limit}"


# ---- timelines


def _planned_timeline(assignment: Assignment) -> Timeline | None:
    """Return the predicted phases, without a link equal parts of the share's; None: no model."""
    candidate = assignment.candidate
    if candidate is not None and candidate.info.link and assignment.model is not None:
        return timeline(assignment.plan, assignment.model, candidate.overlap)
    pace, sizes = assignment.pace, assignment.plan.chunks
    if pace is None:
        return None
    group = max(1, -(-len(sizes) // 3000))  # neighbours of more chunks are merged
    chunks, now = [], 0.0
    for start in range(0, len(sizes), group):
        units = sum(sizes[start : start + group])
        chunks.append(ChunkTimeline(units, None, (now, now + units * pace), None))
        now = chunks[-1].compute[1]
    return Timeline(now, tuple(chunks))


def _measured_timelines(plan: JobPlan, runs: Mapping[str, DeviceRun]) -> dict[str, Timeline]:
    """Return timelines in seconds from the job's first chunk, of each device that ran a chunk."""
    starts = {name: run.span[0] for name, run in runs.items() if run.chunks}
    if not starts:
        return {}
    first = min(starts.values())
    is_virtual = any(runs[name].info.clock == "virtual" for name in starts)
    variants = {assignment.device: assignment.variants for assignment in plan.assignments}
    return {
        name: _measured_timeline(
            runs[name].chunks, start if is_virtual else first, variants.get(name, ())
        )
        for name, start in starts.items()
    }


def _measured_timeline(
    chunks: Iterable[tuple[int, ChunkTimes]], zero: float, variants: Sequence[str]
) -> Timeline:
    def since(span: Span | None) -> Span | None:
        return None if span is None else (span[0] - zero, span[1] - zero)

    ordered = sorted(chunks, key=lambda chunk: chunk[1].start)
    return Timeline(
        max(times.end - zero for _, times in ordered),
        tuple(
            ChunkTimeline(
                units,
                since(times.copy_in),
                (times.compute[0] - zero, times.compute[1] - zero),
                since(times.copy_out),
                variants[times.kernel] if len(variants) > 1 else "",
                times.taken,
            )
            for units, times in ordered
        ),
    )


def phase_seconds(line: Timeline) -> PhaseSeconds:
    def total(spans: Iterable[Span | None]) -> float:
        return sum(span[1] - span[0] for span in spans if span is not None)

    return PhaseSeconds(
        copy_in=total(chunk.copy_in for chunk in line.chunks),
        compute=total(chunk.compute for chunk in line.chunks),
        copy_out=total(chunk.copy_out for chunk in line.chunks),
    )


def hidden_fraction(line: Timeline) -> float | None:
    """Return the fraction of the copies' time that overlapped other phases; None without copies.

    What overlap saves, the sum of all phases less the time in which any was running, is copies.
    """
    sums = phase_seconds(line)
    if sums.copies <= 0:
        return None
    saved = sums.compute + sums.copies - covered(_all_spans(line.chunks))
    return min(max(saved / sums.copies, 0.0), 1.0)


def time_breakdown(line: Timeline | None, total: float) -> TimeBreakdown:
    """Return a device's use of the `total` seconds of a job; the parts sum to the total."""
    if line is None or not line.chunks:
        return TimeBreakdown(computing=0.0, copying=0.0, between=0.0, before=0.0, idle=total)
    spans = _all_spans(line.chunks)
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    computing = covered(chunk.compute for chunk in line.chunks)
    busy = covered(spans)
    return TimeBreakdown(
        computing=computing,
        copying=max(busy - computing, 0.0),
        between=max(last - first - busy, 0.0),
        before=max(first, 0.0),
        idle=max(total - last, 0.0),
    )


def covered(spans: Iterable[Span]) -> float:
    """Return the seconds during which at least one of `spans` runs. O(n log n)."""
    total, covered_until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, covered_until))
        covered_until = max(covered_until, end)
    return total


def _all_spans(chunks: Sequence[ChunkTimeline]) -> list[Span]:
    spans = [(chunk.copy_in, chunk.compute, chunk.copy_out) for chunk in chunks]
    return [span for chunk in spans for span in chunk if span is not None]


# ---- bounds


def correction_of(assignment: Assignment) -> float:
    """Return a device's predicted time over that by its phases; 1 without a link.

    Predictions are corrected by the measured times of whole shares. What is shown beside them is
    multiplied by the same ratio; else a bound could exceed the prediction.
    """
    candidate, model = assignment.candidate, assignment.model
    predicted = assignment.predicted_seconds
    if candidate is None or model is None or predicted is None or not candidate.info.link:
        return 1.0
    planned = price(assignment.plan, model, candidate.overlap)
    return predicted / planned if planned > 0 else 1.0


def device_bound(assignment: Assignment) -> float | None:
    """Return the least seconds of any plan for a device with a link; None for other devices."""
    candidate, model = assignment.candidate, assignment.model
    if candidate is None or model is None or not candidate.info.link:
        return None
    share, memory, overlap = assignment.plan.share, candidate.memory, candidate.overlap
    return correction_of(assignment) * lower_bound(share, model, memory, overlap)


def bound_of_plan(plan: JobPlan) -> float | None:
    """Return the least seconds of any split over the plan's devices; None: one has no model.

    With any plans, by the models: a run may take less, as these may be too slow. (Ours.)
    """
    machine = _machine(plan)
    if not machine:
        return None
    corrections = {a.device: correction_of(a) for a in plan.assignments}
    linked: dict[tuple[int, float], LeastSeconds] = {}
    parts: list[LeastSeconds] = []
    for candidate in machine:
        name, (model,) = candidate.info.name, candidate.models.values()
        assert model is not None, "of _machine"
        if not candidate.info.link:
            # Not the model's total: the plan's curve has the calls of the kernel.
            parts.append(plan.curves.get(name, model.total).time)
            continue
        key = id(model), corrections.get(name, 1.0)
        if key not in linked:
            bounds = ShareBounds(plan.load, model, candidate.memory, candidate.overlap, key[1])
            linked[key] = functools.cache(bounds.seconds)
        parts.append(linked[key])
    return machine_bound(plan.load, parts)


def machine_bound(load: int, devices: Sequence[LeastSeconds]) -> float:
    """Return the least seconds of `load` whole units, 1 or more, within `PRECISION`."""
    counts = Counter(devices)  # equal devices
    low, done = 0.0, dict.fromkeys(counts, 0)
    high = min(float(least(-(-load // count))) for least, count in counts.items())
    beyond = dict.fromkeys(counts, load)
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        most = {
            least: bisect_right(range(1, beyond[least] + 1), middle, lo=done[least], key=least)
            for least in counts
        }
        if sum(count * most[least] for least, count in counts.items()) < load:
            low, done = middle, most
        else:
            high, beyond = middle, most
    return low


# ---- other splits and schedules


def schedule_alternatives(plan: JobPlan) -> dict[str, tuple[Alternative, ...]]:
    """Return the times of other schedules for devices with a link; "best" is a ring.

    Only for the first device of each group, as the search is slow.
    """
    firsts = {group[0] for group in groups_of([a.device for a in plan.assignments])}
    alternatives = {}
    for assignment in plan.assignments:
        candidate, model = assignment.candidate, assignment.model
        if assignment.device not in firsts or candidate is None or model is None:
            continue
        if candidate.info.link:
            share, memory, overlap = assignment.plan.share, candidate.memory, candidate.overlap
            chosen = "best" if candidate.schedule == "ring" else candidate.schedule
            correction = correction_of(assignment)
            known: tuple[Schedule, ...] = ("best", "multi-installment", "factoring")
            others = {
                schedule: scheduled_plan(schedule, share, model, memory, overlap)
                for schedule in known
                if schedule != chosen
            }
            alternatives[assignment.device] = tuple(
                Alternative(schedule, correction * price(other, model, overlap))
                for schedule, other in others.items()
            )
    return alternatives


def split_alternatives(plan: JobPlan, cache: PlanCache) -> tuple[Alternative, ...]:
    """Return equal shares, and each group of devices alone, or the fastest device alone.

    These by their models without the others, if they were measured so; else "contention as now".
    """
    load, curves = plan.load, plan.curves
    names = [assignment.device for assignment in plan.assignments]
    if len(names) < 2 or not all(name in curves for name in names):
        return ()
    share = -(-load // len(names))
    slowest = max(float(curves[name].time(share)) for name in names)
    equal = Alternative("equal shares", slowest)
    sets = groups_of(names)
    if len(sets) == 1:
        sets = [[min(names, key=lambda name: float(curves[name].time(load)))]]
    return equal, *(_only(members, plan, cache) for members in sets)


def _only(names: Sequence[str], plan: JobPlan, cache: PlanCache) -> Alternative:
    candidates = {a.device: a.candidate for a in plan.assignments if a.candidate is not None}
    variants = {a.device: a.variant for a in plan.assignments}
    infos = {c.info.name: c.info for c in (*candidates.values(), *plan.candidates)}
    chosen = [infos[name] for name in names if name in infos]
    alone = [
        candidates[name].beside(beside).with_only(variants[name])
        for name, beside in co_runners_of(chosen, infos.values()).items()
        if variants[name] in candidates[name].models_beside.get(beside, {})
    ]
    description = f"only {group_name(names)}"
    if len(alone) == len(names):
        seconds = plan_job(plan.load, alone, cache=cache).predicted_seconds
        if seconds is not None:
            return Alternative(description, seconds)
    if any(not info.is_modelled for info in infos.values()):
        description += " (contention as now)"
    curves = [plan.curves[name] for name in names]
    return Alternative(description, geometric(curves, plan.load).makespan)


# ---- other machines


def what_if(plan: JobPlan, cache: PlanCache) -> tuple[WhatIf, ...]:
    """Return the plan's time with a faster link, and with another device of each kind."""
    machine = [_without_history(candidate) for candidate in _machine(plan)]
    if not machine or plan.predicted_seconds is None:
        return ()

    def seconds_of(changed: Sequence[Candidate]) -> float | None:
        return plan_job(plan.load, changed, cache=cache).predicted_seconds

    base = seconds_of(machine)
    results = []
    for description, changed in _changed_machines(machine) if base else ():
        seconds = seconds_of(changed)
        if base and seconds is not None and math.isfinite(seconds):
            ratio = seconds / base
            results.append(WhatIf(description, plan.predicted_seconds * ratio, 1 - ratio))
    return tuple(results)


def _changed_machines(machine: list[Candidate]) -> list[tuple[str, list[Candidate]]]:
    linked = [candidate.info.name for candidate in machine if candidate.info.link]
    changes = []
    if linked:
        faster = [_with_faster_link(candidate) for candidate in machine]
        changes.append((f"a link twice as fast for {group_name(linked)}", faster))
    for group in groups_of([candidate.info.name for candidate in machine]):
        first = next(candidate for candidate in machine if candidate.info.name == group[0])
        another = replace(first, info=msgspec.structs.replace(first.info, name="another"))
        assumption = "" if first.info.is_modelled else " (assuming no contention)"
        changes.append((f"another device like {group[0]}{assumption}", [*machine, another]))
    return changes


def _with_faster_link(candidate: Candidate) -> Candidate:
    models = {}
    for variant, model in candidate.models.items():
        models[variant] = model
        if model is not None and model.h2d is not None and model.d2h is not None:
            h2d, d2h = DoubledSpeed(model.h2d), DoubledSpeed(model.d2h)
            models[variant] = replace(model, h2d=h2d, d2h=d2h)
    return replace(candidate, models=models)


@dataclass(frozen=True)
class DoubledSpeed:
    curve: SpeedFunction

    def time(self, x: Any, /) -> Any:
        return self.curve.time(x) / 2

    def speed(self, x: Any, /) -> Any:
        return self.curve.speed(x) * 2


# ---- the devices of a plan


def _machine(plan: JobPlan) -> list[Candidate]:
    """Return the devices that have a share or could have had one, each with its variant only.

    None if one with a share has no model.
    """
    devices = {}
    for a in plan.assignments:
        if a.candidate is None or a.model is None:
            return []
        devices[a.device] = replace(a.candidate, models={a.variant: a.model})
    units = max(1, plan.load // max(1, len(plan.assignments)))
    for candidate in plan.candidates:
        name = candidate.info.name
        models = {v: model for v, model in candidate.models.items() if model is not None}
        if name not in devices and name in plan.curves and models:
            best = min(models, key=lambda v: rough_seconds(models[v], units))
            devices[name] = replace(candidate, models={best: models[best]})
    return list(devices.values())


def _without_history(candidate: Candidate) -> Candidate:
    """Return the candidate without what its latest runs say of other machines' shares."""
    models = {
        variant: replace(model, total=PiecewiseLinear())
        if model and candidate.info.link
        else model
        for variant, model in candidate.models.items()
    }
    return replace(candidate, models=models, last_plan=None, size_trial=None, race=None)
