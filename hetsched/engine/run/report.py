"""What a job's run looks like to users: its notes, its progress and its last report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from hetsched.device import total_seconds
from hetsched.errors import ErrorRecord
from hetsched.job import DeviceProgress, DeviceReport, JobReport, Running, outcome
from hetsched.planner.learning import DeviceRun, makespan, spread
from hetsched.planner.records import JobPlan
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
