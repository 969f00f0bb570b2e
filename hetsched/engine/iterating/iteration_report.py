"""The report of an iterative job that has ended. Pure."""

from __future__ import annotations

import math

import msgspec

from hetsched.engine.iterating.iteration_state import IterationState
from hetsched.engine.job.states import Attempt
from hetsched.job import DeviceReport, JobReport


def with_iterations(
    report: JobReport, iterations: IterationState, attempt: Attempt | None
) -> JobReport:
    """Return `report` with what is known of iterations; `attempt`: the last one."""
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
