"""The account of a job: its plan and what was measured, put beside each other. Pure.

Everything that an account claims is worked out here and in `spent` and `instead`, from the plan,
from the models that it was made with, and from the times of chunks where they really ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import msgspec

from hetsched.device import ChunkTimeline, ChunkTimes, DeviceInfo, Timeline
from hetsched.explain import Account, DeviceAccount
from hetsched.planner.analysis.time_breakdown import (
    hidden_part,
    measured_timeline,
    phases_of,
    spent,
)
from hetsched.planner.analysis.what_if import (
    bounds,
    device_bound,
    device_ways,
    machine_ways,
    what_if,
)
from hetsched.planner.plan_cache import PlanCache
from hetsched.planner.records import Assignment, JobPlan
from hetsched.plans.device_plan import Overlap
from hetsched.plans.timeline import timeline
from hetsched.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Subject:
    """The job that an account is of. `job`: None for a plan that nobody follows."""

    job: int | None
    state: str
    workload: str
    load: int
    params: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: str | None = None


class Ran(Protocol):
    """What one device did: (units, times) of its chunks, on its own clock."""

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def chunks(self) -> Sequence[tuple[int, ChunkTimes]]: ...


def account(
    subject: Subject,
    plan: JobPlan,
    ran: Mapping[str, Ran] | None = None,
    *,
    cache: PlanCache | None = None,
) -> Account:
    """What became of `subject`, which followed `plan`; without `ran` what would become of it.

    Chunks count where they ran: stolen ones, and those that ran again, too. Clocks are taken as
    `executor.planning.makespan` does: virtual ones all start with their device's first chunk.
    """
    cache = PlanCache() if cache is None else cache
    lines = _measured(ran or {})
    total = max((line.makespan for line in lines.values()), default=0.0)
    ways = device_ways(plan)
    devices = tuple(
        msgspec.structs.replace(
            _device(one, lines.get(one.device), total if ran is not None else None, ran or {}),
            ways=ways.get(one.device, ()),
        )
        for one in plan.assignments
    )
    known = bounds(plan, cache)
    return Account(
        job=subject.job,
        state=subject.state,
        workload=subject.workload,
        params=dict(subject.params),
        load=subject.load,
        seconds=total if lines else None,
        predicted_seconds=plan.predicted_seconds,
        fluid_bound=known[0] if known else None,
        whole_unit_bound=known[1] if known else None,
        reasons=plan.reasons,
        devices=devices,
        ways=machine_ways(plan),
        what_if=what_if(plan, cache),
        notes=subject.notes,
        error=subject.error,
    )


def _measured(ran: Mapping[str, Ran]) -> dict[str, Timeline]:
    """Seconds from the start of the job's first chunk, of each device that did something."""
    starts = {
        name: min(times.start for _, times in one.chunks)
        for name, one in ran.items()
        if one.chunks
    }
    if not starts:
        return {}
    first = min(starts.values())
    virtual = any(ran[name].info.clock == "virtual" for name in starts)
    return {
        name: measured_timeline(ran[name].chunks, start if virtual else first)
        for name, start in starts.items()
    }


def _device(
    one: Assignment, line: Timeline | None, total: float | None, ran: Mapping[str, Ran]
) -> DeviceAccount:
    done = ran.get(one.device)
    info = done.info if done is not None else _info(one)
    chunks = done.chunks if done is not None else ()
    planned, bound = _planned(one), device_bound(one)
    phases = None if planned is None or _lumped(one) else phases_of(planned)
    return DeviceAccount(
        device=one.device,
        kind=info.kind if info else "",
        variant=one.variant,
        planned=one.plan.share,
        share=sum(units for units, _ in chunks),
        chunks=_runs(one.plan.chunks),
        planned_chunks=len(one.plan.chunks),
        mode=one.plan.mode.value if info and info.link else "",
        slots=one.slots,
        why=_why(one, info, planned, bound),
        runs=_known_runs(one),
        predicted_seconds=one.predicted_seconds,
        seconds=_length(line),
        predicted=phases,
        measured=None if line is None else phases_of(line),
        predicted_hidden=None if phases is None or planned is None else hidden_part(planned),
        hidden=None if line is None else hidden_part(line),
        spent=None if total is None else spent(line or Timeline(0.0, ()), total),
        bound=bound,
        late=sum(times.late for _, times in chunks),
        plan=planned,
        timeline=line,
    )


def _why(
    one: Assignment, info: DeviceInfo | None, planned: Timeline | None, bound: float | None
) -> str:
    """Why its share is cut as it is."""
    if one.candidate is None or info is None:
        return ""
    if info.link:
        limit = one.candidate.demand.limit
        room = "" if limit is None else f", {format_bytes(one.memory)} of {format_bytes(limit)}"
        if planned is None or not bound:
            return f"factored by two, so that one run teaches several sizes{room}"
        above = 100 * max(0.0, planned.makespan / bound - 1)
        return (
            f"the plan found for its phases and memory, {above:.1f} % above the least that any"
            f" takes{room}"
        )
    if one.pace is None:
        return "small chunks while nothing is known, because a cancel waits for one"
    seconds = format_seconds(one.pace * one.chunk)
    if len(one.chunks) == 1:
        return f"one chunk, it takes no more than {seconds}"
    return f"chunks of {seconds} at most, because a cancel or a lost device costs one"


def _info(one: Assignment) -> DeviceInfo | None:
    return None if one.candidate is None else one.candidate.info


def _planned(one: Assignment) -> Timeline | None:
    """The phases as the models have them; None: never measured.

    Of a device without a link only the whole share was predicted: every unit gets its part of it.
    """
    info = _info(one)
    if info is not None and info.link and one.model is not None:
        return timeline(one.plan, one.model, Overlap.of(info.engines))
    pace = one.pace
    if pace is None:
        return None
    found, now = [], 0.0
    for units in one.plan.chunks:
        found.append(ChunkTimeline(units, None, (now, now + units * pace), None))
        now = found[-1].compute[1]
    return Timeline(now, tuple(found))


def _lumped(one: Assignment) -> bool:
    """Whether what was predicted has copies in it that nobody knows apart: a core's, of files."""
    candidate = one.candidate
    return candidate is not None and candidate.is_staged and not candidate.info.link


def _known_runs(one: Assignment) -> int | None:
    if one.candidate is None or one.model is None:
        return None
    return one.candidate.run_counts.get(one.variant, 0)


def _length(line: Timeline | None) -> float | None:
    """Seconds from a device's first chunk to the end of its last."""
    if line is None or not line.chunks:
        return None
    first = line.chunks[0]
    return line.makespan - (first.copy_in or first.compute)[0]


def _runs(sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(8, 8, 3) -> ((2, 8), (1, 3))."""
    return tuple((len(list(same)), units) for units, same in groupby(sizes))
