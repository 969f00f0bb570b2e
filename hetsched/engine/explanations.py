"""Explains jobs on request, and says what devices do at present.

A snapshot of a job, kept when it has ended, holds references only, and none to its arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from hetsched.device import total_seconds
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.explain import DeviceExplanation, Explanation
from hetsched.explain.recorder import with_used_devices
from hetsched.explain.records import IterationHistory
from hetsched.planner.explanation import explain_job
from hetsched.planner.learning import DeviceRun
from hetsched.planner.records import JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.transport.messages import DeviceActivity

MAX_KEPT_JOBS = 1000
"""Ended jobs to keep: as many as `hetsched status` lists."""
MAX_KEPT_BYTES = 32 << 20
"""Of all kept jobs, estimated; the last job is always kept."""
RECORD_BYTES = 500
"""Of the times of one chunk, estimated."""
MODEL_BYTES = 6000
"""Of one of the models that a plan was chosen by, estimated."""


def subject_of(
    job: ResolvedJob, number: int | None = None, state: str = "planned", notes: Iterable[str] = ()
) -> Explanation:
    """Return what the job is, to be explained."""
    return Explanation(
        job=number,
        state=state,
        workload=job.workload.name,
        params=msgspec.to_builtins(job.params),
        load=job.load,
        notes=(*job.notes, *notes),
    )


@dataclass(frozen=True)
class JobSnapshot:
    subject: Explanation
    plan: JobPlan
    runs: Mapping[str, DeviceRun] = field(repr=False)
    history: IterationHistory | None = None  # Of an iterative job

    def nbytes(self, kept: JobPlan | None = None) -> int:
        """Return the estimated bytes of times, parameters, and the plan, unless it is `kept`."""
        records = sum(len(run.chunks) for run in self.runs.values())
        params = len(msgspec.json.encode(self.subject.params))
        spans = 0 if self.history is None else self.history.nbytes
        plan = 0
        if self.plan is not kept:
            models = [each.models_beside.values() for each in self.plan.candidates]
            count = sum(map(len, itertools.chain.from_iterable(models)))
            plan = self.plan.nbytes + MODEL_BYTES * count
        return plan + RECORD_BYTES * records + params + spans

    def explain(self, cache: PlanCache) -> Explanation:
        """Explain the job as it was then. In the planner's thread."""
        if self.history is not None:
            return explain_iterations(self.subject, self.plan, with_used_devices(self.history))
        return explain_job(self.subject, self.plan, self.runs, cache=cache)


def explain_iterations(job: Explanation, plan: JobPlan, history: IterationHistory) -> Explanation:
    assignments = {each.device: each for each in plan.assignments}
    spans = history.spans
    devices = tuple(
        DeviceExplanation(
            device=device,
            kind=assigned.candidate.info.kind if assigned.candidate is not None else "",
            variant=assigned.variant,
            planned=spans[0].rows[index] if spans else assigned.plan.share,
            share=spans[-1].rows[index] if spans else 0,
            predicted_seconds=None if spans else assigned.predicted_seconds,
        )
        for index, device in enumerate(history.devices)
        if (assigned := assignments.get(device)) is not None
    )
    return msgspec.structs.replace(
        job,
        reasons=plan.reasons,
        seconds=history.seconds or None,
        devices=devices,
        iterations=history,
    )


RECENT_CHUNKS = 16
"""Chunks from which speeds are taken."""


def job_activity(job: JobSnapshot) -> tuple[DeviceActivity, ...]:
    history = job.history
    if history is None:
        return tuple(_device_activity(job, run) for run in job.runs.values())
    if not history.spans:
        return ()
    span = history.spans[-1]
    variants = {assignment.device: assignment.variant for assignment in job.plan.assignments}
    return tuple(
        DeviceActivity(
            device=device,
            job=job.subject.job or 0,
            workload=job.subject.workload,
            variant=variants.get(device, ""),
            share=rows,
            done=rows,
            speed=rows / span.seconds if span.seconds > 0 else None,
            compute_busy=_fraction(compute, span.seconds),
            is_iterative=True,
        )
        for device, rows, compute in zip(history.devices, span.rows, span.compute, strict=True)
        if rows
    )


def _device_activity(job: JobSnapshot, run: DeviceRun) -> DeviceActivity:
    assignment, recent = run.assignment, run.chunks[-RECENT_CHUNKS:]
    units = sum(units for units, _ in recent)
    times = [times for _, times in recent]
    span = max((t.end for t in times), default=0.0) - min((t.start for t in times), default=0.0)
    h2d = total_seconds(t.copy_in for t in times)
    d2h = total_seconds(t.copy_out for t in times)
    compute = total_seconds(t.compute for t in times)
    pace, sizes = assignment.pace, [0.0, 0.0]
    if (candidate := assignment.candidate) is not None and candidate.info.link:
        demand = (candidate.demand.input_bytes, candidate.demand.output_bytes)
        # Not those of callables: the code of plug-ins doesn't run on the loop.
        sizes = [0.0 if callable(size) else float(size) for size in demand]
    input_bytes, output_bytes = (size * units for size in sizes)
    return DeviceActivity(
        device=assignment.device,
        job=job.subject.job or 0,
        workload=job.subject.workload,
        variant=assignment.variant,
        share=assignment.plan.share,
        done=run.share,
        predicted_speed=1 / pace if pace else None,
        speed=units / span if span > 0 else None,
        h2d_busy=_fraction(h2d, span),
        compute_busy=_fraction(compute, span),
        d2h_busy=_fraction(d2h, span),
        h2d_rate=input_bytes / h2d if input_bytes and h2d > 0 else None,
        d2h_rate=output_bytes / d2h if output_bytes and d2h > 0 else None,
    )


def _fraction(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole > 0 else 0.0
