"""The report of a job that has ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.planning.device_run import DeviceRun, makespan, spread
from hetsched.errors import Cancelled, ErrorRecord
from hetsched.job import DeviceReport, Done, Failed, JobReport
from hetsched.planner.job_planner import JobPlan


def job_report(
    number: int,
    job: ResolvedJob,
    plan: JobPlan,
    runs: Mapping[str, DeviceRun],
    notes: Sequence[str] = (),
    *,
    error: ErrorRecord | None = None,
    verified: bool | None = None,
    max_error: float = 0.0,
) -> JobReport:
    """Return the report of a job that ran; without an `error` it is done.

    Parameters
    ----------
    runs : mapping
        Device -> its part of the run.
    verified : bool or None
        None: nothing was verified.
    max_error : float
        Over the samples; reported if `verified`.
    """
    is_done = error is None
    return JobReport(
        job=number,
        state=end_state(error),
        workload=job.workload.name,
        load=job.load,
        seconds=makespan(runs) if is_done else None,
        predicted_seconds=plan.predicted_seconds,
        spread=spread(runs) if is_done else None,
        devices=tuple(device_report(name, device) for name, device in runs.items()),
        verified=verified,
        max_error=max_error if verified else None,
        params=msgspec.to_builtins(job.params),
        notes=(*job.notes, *notes, *plan.reasons),
        outputs={name: output.path for name, output in job.outputs.items()},
        error=error,
    )


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
    """Add `notes` to the report in `state`."""
    report = msgspec.structs.replace(state.report, notes=(*state.report.notes, *notes))
    return msgspec.structs.replace(state, report=report)
