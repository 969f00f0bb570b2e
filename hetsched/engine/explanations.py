"""Explains jobs on request, and says what devices do at present.

A snapshot of a job, kept when it has ended, holds references only, and none to its arrays.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from hetsched import planner
from hetsched.device import ChunkTimes, DeviceInfo, total_seconds
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.explain import DeviceExplanation, Explanation
from hetsched.explain.recorder import with_used_devices
from hetsched.explain.records import IterationHistory
from hetsched.planner.learning import DeviceRun
from hetsched.planner.records import Assignment, JobPlan
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

TimesByDevice = Mapping[str, Sequence[tuple[int, ChunkTimes]]]
"""Device -> (units, times) of each finished chunk."""


@dataclass(frozen=True)
class JobSnapshot:
    """A job at one moment, to be explained. `params` are converted to plain data on request."""

    number: int
    workload: str
    load: int
    params: Any
    plan: JobPlan
    times: TimesByDevice = field(repr=False)
    state: str = "running"
    notes: tuple[str, ...] = ()
    error: str | None = None
    history: IterationHistory | None = None  # Of an iterative job

    @classmethod
    def of(
        cls,
        number: int,
        job: ResolvedJob,
        plan: JobPlan,
        times: TimesByDevice,
        notes: Iterable[str] = (),
        history: IterationHistory | None = None,
    ) -> JobSnapshot:
        notes, name = (*job.notes, *notes), job.workload.name
        return cls(number, name, job.load, job.params, plan, times, notes=notes, history=history)

    def nbytes(self, kept: JobPlan | None = None) -> int:
        """Return the estimated bytes of times, parameters, and the plan, unless it is `kept`."""
        records = sum(map(len, self.times.values()))
        params = len(msgspec.json.encode(self.params))
        spans = 0 if self.history is None else self.history.nbytes
        plan = 0
        if self.plan is not kept:
            models = [each.models_beside.values() for each in self.plan.candidates]
            count = sum(map(len, itertools.chain.from_iterable(models)))
            plan = self.plan.nbytes + MODEL_BYTES * count
        return plan + RECORD_BYTES * records + params + spans

    def explainer(
        self, info: Callable[[str], DeviceInfo], cache: PlanCache
    ) -> Callable[[], Explanation]:
        """Return a function that explains the job as it is now, for the planner's thread."""
        times = {device: tuple(chunks) for device, chunks in self.times.items()}
        return functools.partial(replace(self, times=times)._explain, info, cache)

    def _explain(self, info: Callable[[str], DeviceInfo], cache: PlanCache) -> Explanation:
        params = msgspec.to_builtins(self.params)
        if self.history is not None:
            return self._explain_iterations(with_used_devices(self.history), params, info)
        assignments = {assignment.device: assignment for assignment in self.plan.assignments}
        runs = {
            device: DeviceRun(assignments[device], info(device), tuple(chunks))
            for device, chunks in self.times.items()
        }
        subject = planner.ExplainedJob(
            self.number, self.state, self.workload, self.load, params, self.notes, self.error
        )
        return planner.explain_job(subject, self.plan, runs, cache=cache)

    def _explain_iterations(
        self, history: IterationHistory, params: Any, info: Callable[[str], DeviceInfo]
    ) -> Explanation:
        variants = {a.device: a.variant for a in self.plan.assignments}
        spans = history.spans
        devices = tuple(
            DeviceExplanation(
                device=device,
                kind=info(device).kind,
                variant=variants[device],
                planned=spans[0].rows[index] if spans else 0,
                share=spans[-1].rows[index] if spans else 0,
            )
            for index, device in enumerate(history.devices)
            if device in variants
        )
        return Explanation(
            job=self.number,
            state=self.state,
            workload=self.workload,
            params=params,
            load=self.load,
            seconds=history.seconds or None,
            reasons=self.plan.reasons,
            devices=devices,
            iterations=history,
            notes=self.notes,
            error=self.error,
        )


# ---- what devices do at present

RECENT_CHUNKS = 16
"""Chunks from which speeds are taken."""


def job_activity(job: JobSnapshot) -> tuple[DeviceActivity, ...]:
    """Return the activity of each device that has a share."""
    if job.history is not None:
        return _iterative_activity(job, job.history)
    return tuple(
        _device_activity(job, assignment, job.times.get(assignment.device, ()))
        for assignment in job.plan.assignments
    )


def _iterative_activity(job: JobSnapshot, history: IterationHistory) -> tuple[DeviceActivity, ...]:
    if not history.spans:
        return ()
    span = history.spans[-1]
    variants = {assignment.device: assignment.variant for assignment in job.plan.assignments}
    return tuple(
        DeviceActivity(
            device=device,
            job=job.number,
            workload=job.workload,
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


def _device_activity(
    job: JobSnapshot, assignment: Assignment, chunks: Sequence[tuple[int, ChunkTimes]]
) -> DeviceActivity:
    recent = chunks[-RECENT_CHUNKS:]
    units = sum(units for units, _ in recent)
    times = [times for _, times in recent]
    span = max((t.end for t in times), default=0.0) - min((t.start for t in times), default=0.0)
    h2d = total_seconds(t.copy_in for t in times)
    d2h = total_seconds(t.copy_out for t in times)
    compute = total_seconds(t.compute for t in times)
    input_bytes, output_bytes = _link_bytes(assignment, units)
    pace = assignment.pace
    return DeviceActivity(
        device=assignment.device,
        job=job.number,
        workload=job.workload,
        variant=assignment.variant,
        share=assignment.plan.share,
        done=sum(units for units, _ in chunks),
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


def _link_bytes(assignment: Assignment, units: int) -> tuple[float, float]:
    """Return the bytes of `units` that a device with a link copies in and out."""
    candidate = assignment.candidate
    if candidate is None or not candidate.info.link or not units:
        return 0.0, 0.0
    # Not those of callables: the code of plug-ins doesn't run on the loop.
    sizes = (candidate.demand.input_bytes, candidate.demand.output_bytes)
    h2d, d2h = (0.0 if callable(size) else float(size) for size in sizes)
    return h2d * units, d2h * units
