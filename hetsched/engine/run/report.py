"""The report of a job that has ended. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning.device_run import DeviceRun, makespan, spread
from hetsched.engine.run.attempt import Attempt
from hetsched.engine.run.epochs import IterationState
from hetsched.engine.run.running_job import RunningJob
from hetsched.errors import Cancelled, ErrorRecord
from hetsched.job import DeviceReport, Done, Failed, JobReport
from hetsched.planner.job_planner import JobPlan


def job_report(
    running: RunningJob,
    runs: Mapping[str, DeviceRun],
    *,
    error: ErrorRecord | None = None,
) -> JobReport:
    """Return the report of a job; without an `error` it is done.

    `runs`: device -> its part of the run.
    """
    is_done = error is None
    job, attempt = running.job, running.latest
    plan = attempt.plan if attempt is not None else JobPlan((), None, ())
    verified = attempt.verified if attempt is not None else None
    report = JobReport(
        job=running.number,
        state=end_state(error),
        workload=job.workload.name,
        load=job.load,
        seconds=makespan(runs) if is_done else None,
        predicted_seconds=plan.predicted_seconds,
        spread=spread(runs) if is_done else None,
        devices=tuple(device_report(name, device) for name, device in runs.items()),
        verified=verified,
        max_error=attempt.max_error if attempt is not None and verified else None,
        params=msgspec.to_builtins(job.params),
        notes=(*job.notes, *running.notes, *plan.reasons),
        outputs={name: output.path for name, output in job.outputs.items()},
        error=error,
    )
    if running.iterations is None:
        return report
    return _with_iterations(report, running.iterations, attempt)


def minimal_report(number: int, job: ResolvedJob, error: ErrorRecord) -> JobReport:
    """Return the report of a job that never ran, or without a full report because of an error."""
    return JobReport(
        job=number,
        state=end_state(error),
        workload=job.workload.name,
        load=job.load,
        error=error,
    )


def end_state(error: ErrorRecord | None) -> str:
    """Return the state of an ended job: "done", "cancelled" or "failed"."""
    if error is None:
        return "done"
    return "cancelled" if error.code == Cancelled.code else "failed"


def device_report(name: str, run: DeviceRun) -> DeviceReport:
    times = [chunk for _, chunk in run.chunks]
    return DeviceReport(
        device=name,
        kind=run.info.kind,
        variant=_variants(run),
        share=run.share,
        seconds=run.seconds,
        chunks=tuple(units for units, _ in run.chunks),
        predicted_seconds=run.assignment.predicted_seconds,
        copy_in_seconds=sum(_length(chunk.copy_in) for chunk in times),
        compute_seconds=sum(_length(chunk.compute) for chunk in times),
        copy_out_seconds=sum(_length(chunk.copy_out) for chunk in times),
        late=sum(chunk.late for chunk in times),
    )


def _variants(run: DeviceRun) -> str:
    """Return the variant that computed the chunks; in a race all of them, "a, b"."""
    variants = run.assignment.variants
    kernels = sorted({times.kernel for _, times in run.chunks}) or [0]
    return ", ".join(variants[kernel] for kernel in kernels)


def _length(phase: tuple[float, float] | None) -> float:
    return phase[1] - phase[0] if phase else 0.0


def with_notes(state: Done | Failed, notes: Iterable[str]) -> Done | Failed:
    report = msgspec.structs.replace(state.report, notes=(*state.report.notes, *notes))
    return msgspec.structs.replace(state, report=report)


def _with_iterations(
    report: JobReport, iterations: IterationState, attempt: Attempt | None
) -> JobReport:
    devices = () if attempt is None else _devices(iterations, attempt)
    return msgspec.structs.replace(
        report,
        seconds=iterations.seconds if iterations.is_complete else None,
        predicted_seconds=None,  # the plan's is of one iteration
        spread=_spread(iterations) if iterations.is_complete else None,
        devices=devices,
        iterations=max(0, iterations.finished),
        residual=None if math.isnan(iterations.residual) else iterations.residual,
        converged=_converged(iterations),
        moves=iterations.moves,
        continued_after=iterations.continued_after,
    )


def _converged(iterations: IterationState) -> bool | None:
    """Return whether the method has converged; None if nothing was to converge."""
    if iterations.has_converged or not math.isnan(iterations.residual):
        return iterations.has_converged
    return None


def _devices(iterations: IterationState, attempt: Attempt) -> tuple[DeviceReport, ...]:
    reports = []
    for device in iterations.sums.devices:
        assignment, info = attempt.assignments.get(device), attempt.infos.get(device)
        phases = iterations.sums.of(device)
        reports.append(
            DeviceReport(
                device=device,
                kind="" if info is None else info.kind,
                variant="" if assignment is None else assignment.variant,
                share=iterations.sums.rows.get(device, 0),
                seconds=phases.compute + phases.transfer + phases.converge + phases.save,
                chunks=(),
                compute_seconds=phases.compute,
                phases=phases,
            )
        )
    return tuple(reports)


def _spread(iterations: IterationState) -> float:
    """Return (max - min) / min of the devices' times in the last iteration, without waits."""
    if iterations.last is None:
        return 0.0
    times = [t.compute + t.transfer + t.converge for t in iterations.last.times.values()]
    shortest = min(times)
    return (max(times) - shortest) / shortest if shortest > 0 else 0.0
