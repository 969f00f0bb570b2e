"""The explanation of a job: its plan compared with measurements. Pure.

All figures are computed here and in `time_breakdown`, `alternatives` and `what_if`, from the plan,
the models behind it, and the times of chunks on the devices that ran them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import msgspec

from hetsched.device import ChunkTimeline, ChunkTimes, DeviceInfo, Timeline
from hetsched.explain import DeviceExplanation, Explanation
from hetsched.planner.analysis.alternatives import device_alternatives, split_alternatives
from hetsched.planner.analysis.corrections import Corrections, corrections_of
from hetsched.planner.analysis.time_breakdown import (
    hidden_fraction,
    measured_timeline,
    phase_seconds,
    time_breakdown,
)
from hetsched.planner.analysis.what_if import device_bound, plan_bounds, what_if
from hetsched.planner.cores.chunk_lengths import call_seconds, longest_chunk
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.records import Assignment, JobPlan
from hetsched.plans.device_plan import Overlap
from hetsched.plans.timeline import timeline
from hetsched.units import counted, format_bytes, format_seconds

MAX_TIMELINE_CHUNKS = 3000
"""Chunks of a core's planned timeline; of more, neighbours are merged."""


@dataclass(frozen=True)
class ExplainedJob:
    """The job to explain. `job`: None for a plan that is not run."""

    job: int | None
    state: str
    workload: str
    load: int
    params: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str | None = None


class ExecutedChunks(Protocol):
    """(units, times) of the chunks that one device ran, on its own clock."""

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def chunks(self) -> Sequence[tuple[int, ChunkTimes]]: ...


def explain_job(
    job: ExplainedJob,
    plan: JobPlan,
    runs: Mapping[str, ExecutedChunks] | None = None,
    *,
    cache: PlanCache | None = None,
) -> Explanation:
    """Explain a job that followed `plan`, or without `runs` the plan itself.

    Chunks count for the device that ran them, including stolen and repeated ones. A virtual clock
    starts with its device's first chunk.

    Parameters
    ----------
    job : ExplainedJob
    plan : JobPlan
    runs : mapping of device to ExecutedChunks, optional
    cache : PlanCache, optional
    """
    cache = PlanCache() if cache is None else cache
    lines = _measured_timelines(plan, runs or {})
    total = max((line.makespan for line in lines.values()), default=0.0)
    corrections = corrections_of(plan)
    bounds = plan_bounds(plan, corrections, cache)
    return Explanation(
        job=job.job,
        state=job.state,
        workload=job.workload,
        params=dict(job.params),
        load=job.load,
        seconds=total if lines else None,
        predicted_seconds=plan.predicted_seconds,
        fluid_bound=bounds[0] if bounds else None,
        whole_unit_bound=bounds[1] if bounds else None,
        reasons=plan.reasons,
        devices=_devices(plan, lines, None if runs is None else total, runs or {}, corrections),
        alternatives=split_alternatives(plan, cache),
        what_if=what_if(plan, cache),
        notes=job.notes,
        error=job.error,
    )


def _measured_timelines(plan: JobPlan, runs: Mapping[str, ExecutedChunks]) -> dict[str, Timeline]:
    """Return timelines in seconds from the job's first chunk, of each device that ran a chunk."""
    starts = {
        name: min(times.start for _, times in run.chunks)
        for name, run in runs.items()
        if run.chunks
    }
    if not starts:
        return {}
    first = min(starts.values())
    is_virtual = any(runs[name].info.clock == "virtual" for name in starts)
    variants = {assignment.device: assignment.variants for assignment in plan.assignments}
    return {
        name: measured_timeline(
            runs[name].chunks, start if is_virtual else first, variants.get(name, ())
        )
        for name, start in starts.items()
    }


def _devices(
    plan: JobPlan,
    lines: Mapping[str, Timeline],
    total: float | None,
    runs: Mapping[str, ExecutedChunks],
    corrections: Corrections,
) -> tuple[DeviceExplanation, ...]:
    alternatives = device_alternatives(plan, corrections)
    return tuple(
        msgspec.structs.replace(
            _device(
                assignment,
                lines.get(assignment.device),
                total,
                runs,
                corrections.get(assignment.device, 1.0),
            ),
            alternatives=alternatives.get(assignment.device, ()),
        )
        for assignment in plan.assignments
    )


def _device(
    assignment: Assignment,
    line: Timeline | None,
    total: float | None,
    runs: Mapping[str, ExecutedChunks],
    correction: float,
) -> DeviceExplanation:
    run = runs.get(assignment.device)
    info = _info(assignment) if run is None else run.info
    chunks = () if run is None else run.chunks
    planned, bound = _planned_timeline(assignment), device_bound(assignment, correction)
    phases_line = None if _has_unknown_phases(assignment) else planned
    breakdown = None
    if total is not None:
        breakdown = time_breakdown(line or Timeline(0.0, ()), total)
    return DeviceExplanation(
        device=assignment.device,
        kind=info.kind if info else "",
        variant=assignment.variant,
        planned=assignment.plan.share,
        share=sum(units for units, _ in chunks),
        pooled=assignment.pooled,
        taken=sum(units for units, times in chunks if times.taken),
        chunks=_counted_sizes(assignment.plan.chunks),
        planned_chunks=len(assignment.plan.chunks),
        mode=assignment.plan.mode.value if info and info.link else "",
        slots=assignment.slots,
        chunk_reason=_chunk_reason(assignment, info, bound),
        call_reason=_call_reason(assignment),
        runs=_model_runs(assignment),
        predicted_seconds=assignment.predicted_seconds,
        seconds=_length(line),
        predicted=None if phases_line is None else phase_seconds(phases_line),
        measured=None if line is None else phase_seconds(line),
        predicted_hidden=None if phases_line is None else hidden_fraction(phases_line),
        hidden=None if line is None else hidden_fraction(line),
        time_breakdown=breakdown,
        bound=bound,
        units_per_call=max((times.units_per_call for _, times in chunks), default=0),
        late=sum(times.late for _, times in chunks),
        plan=planned,
        timeline=line,
    )


def _chunk_reason(
    assignment: Assignment,
    info: DeviceInfo | None,
    bound: float | None,
) -> str:
    """Return why the share is cut into these chunks."""
    if assignment.candidate is None or info is None:
        return ""
    if info.link:
        return _linked_chunk_reason(assignment, bound)
    if assignment.rivals:
        names = ", ".join(assignment.variants)
        return f"variants take turns, to find the fastest on this machine: {names}"
    if assignment.pace is None:
        return "small chunks until there are measurements: a cancel waits for the running chunk"
    seconds = format_seconds(assignment.pace * assignment.max_chunk)
    tail = _tail_reason(assignment)
    if assignment.compares_calls:
        tail = "; some are shorter, to learn what a call of the kernel costs"
    if len(assignment.chunks) == 1 and not tail:
        return f"one chunk, which takes only {seconds}"
    return f"chunks of at most {seconds}: a cancel or a lost device costs one{tail}"


def _call_reason(assignment: Assignment) -> str:
    """Return what a call costs on a core, and how its chunks follow; "": it costs nothing."""
    share, seconds = assignment.plan.share, assignment.predicted_seconds
    call = call_seconds(assignment.model, share)
    if not call or not seconds:
        return ""
    count = len(assignment.plan.chunks)
    part = 100 * call * count / seconds
    longest = format_seconds(longest_chunk(call))
    calls = f"{counted(count, 'call')} take {part:.1f} % of its time"
    limit = f", with chunks of up to {longest}" if count > 1 else ""
    return f"each call of the kernel costs {format_seconds(call)}; {calls}{limit}"


def _tail_reason(assignment: Assignment) -> str:
    """Return which part of the cores' shares is left to their tail, and why; "" without one."""
    if assignment.tail is None or assignment.model is None:
        return ""
    units = counted(assignment.tail.units, "unit")
    return f"; the cores take the last {units} when they are done, as their speeds vary"


def _linked_chunk_reason(assignment: Assignment, bound: float | None) -> str:
    limit = None if assignment.candidate is None else assignment.candidate.demand.limit
    memory = ""
    if limit is not None:
        memory = f", {format_bytes(assignment.slot_memory)} of {format_bytes(limit)}"
    predicted = assignment.predicted_seconds
    if predicted is None or not bound:
        return f"factored by two, so that one run measures several sizes{memory}"
    above = 100 * max(0.0, predicted / bound - 1)
    return (
        f"the best plan found for its phases and memory, {above:.1f} % above the lower"
        f" bound{memory}"
    )


def _info(assignment: Assignment) -> DeviceInfo | None:
    return None if assignment.candidate is None else assignment.candidate.info


def _planned_timeline(assignment: Assignment) -> Timeline | None:
    """Return the predicted phases; None without a model.

    For a device without a link only the whole share was predicted; each unit gets an equal part.
    """
    info = _info(assignment)
    if info is not None and info.link and assignment.model is not None:
        return timeline(assignment.plan, assignment.model, Overlap.of(info.engines))
    pace = assignment.pace
    if pace is None:
        return None
    chunks, now = [], 0.0
    for units in _merged_sizes(assignment.plan.chunks, MAX_TIMELINE_CHUNKS):
        chunks.append(ChunkTimeline(units, None, (now, now + units * pace), None))
        now = chunks[-1].compute[1]
    return Timeline(now, tuple(chunks))


def _merged_sizes(sizes: Sequence[int], limit: int) -> Sequence[int]:
    """Return `sizes` with neighbours added up, so that at most `limit` remain."""
    group = -(-len(sizes) // limit)
    if group <= 1:
        return sizes
    return [sum(sizes[start : start + group]) for start in range(0, len(sizes), group)]


def _has_unknown_phases(assignment: Assignment) -> bool:
    """Return whether the prediction includes copies without separate times: a core's, of files."""
    candidate = assignment.candidate
    return candidate is not None and candidate.is_staged and not candidate.info.link


def _model_runs(assignment: Assignment) -> int | None:
    if assignment.candidate is None or assignment.model is None:
        return None
    return assignment.candidate.run_counts.get(assignment.variant, 0)


def _length(line: Timeline | None) -> float | None:
    """Return the seconds from the start of a device's first chunk to the end of its last."""
    if line is None or not line.chunks:
        return None
    first = line.chunks[0]
    return line.makespan - (first.copy_in or first.compute)[0]


def _counted_sizes(sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return (count, size) of runs of equal sizes: (8, 8, 3) -> ((2, 8), (1, 3))."""
    return tuple((len(list(equal)), units) for units, equal in groupby(sizes))
