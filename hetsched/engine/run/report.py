"""What a job's run looks like to users: its notes, its progress and its last report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from hetsched.engine.planning.device_run import DeviceRun, makespan, spread
from hetsched.errors import ErrorRecord
from hetsched.job import (
    DeviceProgress,
    DeviceReport,
    JobReport,
    Running,
    outcome,
)
from hetsched.planner.job_planner import JobPlan
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


class Notes:
    """The notes of one job, for its report."""

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._omitted = 0
        # What devices said before a slow step -> seconds until the next progress
        self._slow_steps: dict[str, float] = {}
        self._slow_step = ("", 0.0)

    def add(self, text: str) -> None:
        self._notes.append(text)
        if len(self._notes) > MAX_NOTES:
            del self._notes[MAX_NOTES // 2]
            self._omitted += 1

    def replace(self, beginning: str, text: str) -> None:
        """Add a note instead of the previous one with this beginning."""
        self._notes = [note for note in self._notes if not note.startswith(beginning)]
        self.add(text)

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
    """Return the state of a running job; `text`: what devices say."""
    iterations = runner.iterations
    if iterations is None:
        computation = attempt.computation
        devices = computation.dispatcher.progress() if computation is not None else ()
        predicted = attempt.plan.predicted_seconds
        return Running(runner.number, attempt.step, devices, predicted, text)
    rows = iterations.last.rows if iterations.last is not None else {}
    return Running(
        runner.number,
        attempt.step,
        tuple(DeviceProgress(device, count, count) for device, count in rows.items()),
        text=text,
        iteration=max(0, iterations.reported),
        max_iterations=iterations.max_iterations,
        residual=_known(iterations.residual),
        iterations_per_second=iterations.per_second,
    )


def job_report(
    runner: JobRunner, runs: Mapping[str, DeviceRun], *, error: ErrorRecord | None = None
) -> JobReport:
    """Return the report of a job; without an `error` it is done.

    `runs`: device -> its part of the run.
    """
    is_done = error is None
    job, attempt, iterations = runner.job, runner.latest, runner.iterations
    plan = attempt.plan if attempt is not None else JobPlan((), None, ())
    verified = attempt.verified if attempt is not None else None
    report = JobReport(
        job=runner.number,
        state=outcome(error),
        workload=job.workload.name,
        load=job.load,
        seconds=makespan(runs) if is_done else None,
        predicted_seconds=plan.predicted_seconds,
        spread=spread(runs) if is_done else None,
        devices=tuple(device_report(name, device) for name, device in runs.items()),
        verified=verified,
        max_error=attempt.max_error if attempt is not None and verified else None,
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
        residual=_known(iterations.residual),
        converged=iterations.has_converged if is_known else None,  # None: nothing was to converge
        moves=iterations.moves,
        continued_after=iterations.continued_after,
    )


def device_report(name: str, run: DeviceRun) -> DeviceReport:
    copy_in = compute = copy_out = 0.0
    late = 0
    for _, chunk in run.chunks:
        compute += chunk.compute[1] - chunk.compute[0]
        copy_in += chunk.copy_in[1] - chunk.copy_in[0] if chunk.copy_in else 0.0
        copy_out += chunk.copy_out[1] - chunk.copy_out[0] if chunk.copy_out else 0.0
        late += chunk.late
    # Of a race all variants that computed chunks, "a, b"
    kernels = sorted({times.kernel for _, times in run.chunks}) or [0]
    return DeviceReport(
        device=name,
        kind=run.info.kind,
        variant=", ".join([run.assignment.variants[kernel] for kernel in kernels]),
        share=run.share,
        seconds=run.seconds,
        chunks=tuple([units for units, _ in run.chunks]),
        predicted_seconds=run.assignment.predicted_seconds,
        copy_in_seconds=copy_in,
        compute_seconds=compute,
        copy_out_seconds=copy_out,
        late=late,
    )


def _iterating_devices(iterations: IterationState, attempt: Attempt) -> tuple[DeviceReport, ...]:
    reports = []
    rows = iterations.last.rows if iterations.last is not None else {}
    for device, times in iterations.sums.items():
        assignment, info = attempt.assignments.get(device), attempt.infos.get(device)
        reports.append(
            DeviceReport(
                device=device,
                kind="" if info is None else info.kind,
                variant="" if assignment is None else assignment.variant,
                share=rows.get(device, 0),
                seconds=times.busy + times.save,
                chunks=(),
                compute_seconds=times.compute,
                phases=times,
            )
        )
    return tuple(reports)


def _spread(iterations: IterationState) -> float:
    """Return (max - min) / min of the devices' times in the last iteration, without waits."""
    if iterations.last is None:
        return 0.0
    times = [each.busy for each in iterations.last.times.values()]
    shortest = min(times)
    return (max(times) - shortest) / shortest if shortest > 0 else 0.0


def _known(residual: float) -> float | None:
    return None if math.isnan(residual) else residual
