"""What each device of a running job does at present, from its plan and its last chunks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.device import ChunkTimes
from hetsched.engine.explanations import JobSnapshot
from hetsched.explain.iterations.records import IterationHistory
from hetsched.planner.records import Assignment
from hetsched.transport.messages import DeviceActivity

RECENT_CHUNKS = 16
"""Chunks from which speeds are taken. Arbitrary."""


def job_activity(job: JobSnapshot) -> tuple[DeviceActivity, ...]:
    """Return the activity of each device that has a share."""
    if job.history is not None:
        return _iterative_activity(job, job.history)
    return tuple(
        _device_activity(job, assignment, job.times.get(assignment.device, ()))
        for assignment in job.plan.assignments
    )


def _iterative_activity(job: JobSnapshot, history: IterationHistory) -> tuple[DeviceActivity, ...]:
    """Return what each device did in the last iterations."""
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
    h2d = sum(t.copy_in[1] - t.copy_in[0] for t in times if t.copy_in)
    d2h = sum(t.copy_out[1] - t.copy_out[0] for t in times if t.copy_out)
    compute = sum(t.compute[1] - t.compute[0] for t in times)
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
