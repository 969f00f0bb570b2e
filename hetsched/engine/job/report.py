"""What a run was, as the records that users see. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hetsched.engine.planning.plan_and_learn import Measured, makespan, spread
from hetsched.engine.resolve import Resolved
from hetsched.errors import ErrorRecord
from hetsched.job import DeviceReport, JobReport
from hetsched.planner.job_planner import JobPlan


def job_report(
    number: int,
    job: Resolved,
    plan: JobPlan,
    measured: Mapping[str, Measured],
    state: str,
    error: ErrorRecord | None,
    verified: bool | None,
    max_error: float,
) -> JobReport:
    """All that there is to say about a run that has ended, well or not."""
    done = state == "done"
    return JobReport(
        job=number,
        state=state,
        workload=job.workload.name,
        load=job.load,
        seconds=makespan(measured) if done else None,
        predicted_seconds=plan.predicted_seconds,
        spread=spread(measured) if done else None,
        devices=tuple(device_report(name, one) for name, one in measured.items()),
        verified=verified,
        max_error=max_error if verified else None,
        params=msgspec.to_builtins(job.params),
        notes=(*job.notes, *plan.reasons),
        outputs={name: output.path for name, output in job.outputs.items()},
        error=error,
    )


def device_report(name: str, one: Measured) -> DeviceReport:
    times = [chunk for _, chunk in one.chunks]
    return DeviceReport(
        device=name,
        kind=one.info.kind,
        variant=one.assignment.variant,
        share=one.share,
        seconds=one.seconds,
        chunks=tuple(units for units, _ in one.chunks),
        predicted_seconds=one.assignment.predicted_seconds,
        copy_in_seconds=sum(_length(chunk.copy_in) for chunk in times),
        compute_seconds=sum(_length(chunk.compute) for chunk in times),
        copy_out_seconds=sum(_length(chunk.copy_out) for chunk in times),
        late=sum(chunk.late for chunk in times),
    )


def _length(phase: tuple[float, float] | None) -> float:
    return phase[1] - phase[0] if phase else 0.0
