"""The explanation of a job: its plan compared with measurements. Pure.

All figures are computed here and in `what_if`, from the plan, the models behind it, and the times
of chunks on the devices that ran them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from msgspec.structs import replace

from hetsched.device import ChunkTimeline, ChunkTimes, Timeline
from hetsched.explain import DeviceExplanation, Explanation, PhaseSeconds, TimeBreakdown
from hetsched.planner.assignment import longest_chunk
from hetsched.planner.learning import DeviceRun
from hetsched.planner.records import Assignment, Candidate, JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.planner.what_if import (
    bound_of_plan,
    device_bound,
    schedule_alternatives,
    split_alternatives,
    what_if,
)
from hetsched.plans.recurrence import timeline
from hetsched.units import counted, format_bytes, format_seconds

Span = tuple[float, float]


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
    return replace(
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
    """Return (units, times) of each chunk as a timeline in seconds from `zero`, by start."""

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
