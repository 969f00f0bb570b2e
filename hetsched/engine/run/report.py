"""What a job's run looks like to users: notes, progress, the last report, what explains it.

A snapshot of a job, kept when it has ended, holds references only, and none to its arrays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from hetsched.device import total_seconds
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.errors import ErrorRecord
from hetsched.explain import DeviceExplanation, Explanation
from hetsched.explain.recorder import with_used_devices
from hetsched.explain.records import IterationHistory
from hetsched.job import DeviceProgress, DeviceReport, JobReport, Running, outcome
from hetsched.planner.explanation import explain_job
from hetsched.planner.learning import DeviceRun, makespan, spread
from hetsched.planner.records import JobPlan
from hetsched.planner.totals import PlanCache
from hetsched.transport.messages import DeviceActivity
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.engine.run.attempt import Attempt
    from hetsched.engine.run.epochs import IterationState
    from hetsched.engine.run.runner import JobRunner

MAX_NOTES = 100
"""Of one job: the first half and the last ones are kept."""
MAX_SLOW_STEPS = 20
MIN_STEP_SECONDS = 0.01
"""Shorter ones, such as planning what is in the cache, are no news."""
MAX_KEPT_JOBS = 1000
"""Ended jobs to keep: as many as `hetsched status` lists."""
MAX_KEPT_BYTES = 32 << 20
"""Of all kept jobs, estimated; the last job is always kept."""
RECORD_BYTES = 500
"""Of the times of one chunk, estimated."""
MODEL_BYTES = 6000
"""Of one of the models that a plan was chosen by, estimated."""
RECENT_CHUNKS = 16
"""Chunks from which speeds are taken."""


class Notes:
    def __init__(self) -> None:
        self._notes: list[str] = []
        self._omitted = 0
        # What devices said before a slow step -> seconds until the next progress
        self._slow_steps: dict[str, float] = {}
        self._slow_step = ("", 0.0)

    def add(self, text: str, instead_of: str = "") -> None:
        """Add a note; `instead_of`: of previous ones with this beginning."""
        if instead_of:
            self._notes = [note for note in self._notes if not note.startswith(instead_of)]
        self._notes.append(text)
        if len(self._notes) > MAX_NOTES:
            del self._notes[MAX_NOTES // 2]
            self._omitted += 1

    def measure_step(self, text: str, now: float) -> None:
        """Note the time of the slow step before; `text`: of the one that begins now, or ""."""
        before, began = self._slow_step
        if before and (before in self._slow_steps or len(self._slow_steps) < MAX_SLOW_STEPS):
            self._slow_steps[before] = self._slow_steps.get(before, 0.0) + now - began
        self._slow_step = (text, now)

    def all(self) -> list[str]:
        notes = list(self._notes)
        if self._omitted:
            notes.insert(MAX_NOTES // 2, f"({counted(self._omitted, 'note')} omitted here)")
        notes += [
            f"{text.rstrip(' .')}: {format_seconds(seconds)}"
            for text, seconds in self._slow_steps.items()
            if seconds >= MIN_STEP_SECONDS
        ]
        return notes


def progress(runner: JobRunner, attempt: Attempt, text: str) -> Running:
    iterations = runner.iterations
    if iterations is None:
        computation = attempt.computation
        devices = computation.dispatcher.progress() if computation is not None else ()
        predicted = attempt.plan.predicted_seconds
        return Running(runner.number, attempt.step, devices, predicted, text)
    return Running(
        runner.number,
        attempt.step,
        tuple(DeviceProgress(device, count, count) for device, count in iterations.rows.items()),
        text=text,
        iteration=max(0, iterations.reported),
        max_iterations=iterations.max_iterations,
        residual=None if math.isnan(iterations.residual) else iterations.residual,
        iterations_per_second=iterations.per_second,
    )


def job_report(
    runner: JobRunner, runs: Mapping[str, DeviceRun], *, error: ErrorRecord | None = None
) -> JobReport:
    is_done = error is None
    job, attempt, iterations = runner.job, runner.latest, runner.iterations
    plan = attempt.plan if attempt is not None else JobPlan((), None, ())
    report = JobReport(
        job=runner.number,
        state=outcome(error),
        workload=job.workload.name,
        load=job.load,
        seconds=makespan(runs) if is_done else None,
        predicted_seconds=plan.predicted_seconds,
        spread=spread(runs) if is_done else None,
        devices=tuple(device_report(name, device) for name, device in runs.items()),
        verified=attempt.verified if attempt is not None else None,
        max_error=attempt.max_error if attempt is not None else None,
        params=msgspec.to_builtins(job.params),
        notes=(*job.notes, *runner.notes(), *plan.reasons),
        outputs={name: output.path for name, output in job.outputs.items()},
        error=error,
    )
    if iterations is None:
        return report
    is_known = iterations.has_converged or not math.isnan(iterations.residual)
    return msgspec.structs.replace(
        report,
        seconds=iterations.seconds if iterations.is_complete else None,
        predicted_seconds=None,  # the plan's is of one iteration
        spread=_spread(iterations) if iterations.is_complete else None,
        devices=() if attempt is None else _iterating_devices(iterations, attempt),
        iterations=max(0, iterations.finished),
        residual=None if math.isnan(iterations.residual) else iterations.residual,
        converged=iterations.has_converged if is_known else None,  # None: nothing was to converge
        moves=iterations.moves,
        continued_after=iterations.continued_after,
    )


def device_report(name: str, run: DeviceRun) -> DeviceReport:
    times = [times for _, times in run.chunks]
    # Of a race all variants that computed chunks, "a, b"
    kernels = sorted({each.kernel for each in times}) or [0]
    return DeviceReport(
        device=name,
        kind=run.info.kind,
        variant=", ".join([run.assignment.variants[kernel] for kernel in kernels]),
        share=run.share,
        seconds=run.seconds,
        chunks=tuple([units for units, _ in run.chunks]),
        predicted_seconds=run.assignment.predicted_seconds,
        copy_in_seconds=total_seconds(each.copy_in for each in times),
        compute_seconds=total_seconds(each.compute for each in times),
        copy_out_seconds=total_seconds(each.copy_out for each in times),
        late=sum([each.late for each in times]),
    )


def _iterating_devices(iterations: IterationState, attempt: Attempt) -> tuple[DeviceReport, ...]:
    rows, infos, assignments = iterations.rows, attempt.infos, attempt.assignments
    return tuple(
        DeviceReport(
            device=device,
            kind=infos[device].kind if device in infos else "",
            variant=assignments[device].variant if device in assignments else "",
            share=rows.get(device, 0),
            seconds=times.busy + times.save,
            chunks=(),
            compute_seconds=times.compute,
            phases=times,
        )
        for device, times in iterations.sums.items()
    )


def _spread(iterations: IterationState) -> float:
    """Return (max - min) / min of the devices' times in the last iteration, without waits."""
    times = iterations.last.times if iterations.last is not None else ()
    busy = [each.busy for each in times if each is not None]
    shortest = min(busy, default=0.0)
    return (max(busy) - shortest) / shortest if shortest > 0 else 0.0


# ---- explanations


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
