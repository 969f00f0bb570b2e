"""What one running job keeps from attempt to attempt."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.context import EngineContext
from hetsched.engine.explanations import JobSnapshot
from hetsched.engine.failures import JobFailures
from hetsched.engine.planning.device_run import DeviceRun, makespan, spread
from hetsched.engine.run.arrays import IterativeArrays, JobArrays, job_arrays
from hetsched.engine.run.epochs import IterationState
from hetsched.engine.run.saves import Saves
from hetsched.errors import ErrorRecord
from hetsched.job import (
    DeviceProgress,
    DeviceReport,
    Done,
    Failed,
    JobReport,
    JobSpec,
    JobState,
    Running,
    outcome,
)
from hetsched.planner.job_planner import JobPlan
from hetsched.units import counted, format_seconds

if TYPE_CHECKING:
    from hetsched.engine.run.attempt import Attempt


MAX_NOTES = 100
"""Of one job: the first half and the last ones are kept."""
MAX_SLOW_STEPS = 20
MIN_STEP_SECONDS = 0.01
"""Shorter ones, such as planning what is in the cache, are no news."""
PROGRESS_SECONDS = 0.1
"""Minimum interval between two progress states of a job."""


class RunningJob:
    """One running job.

    Parameters
    ----------
    on_state : callable
        Called with each Running state.
    plan : JobPlan or None
        On one core, beside another job.
    """

    def __init__(
        self,
        number: int,
        spec: JobSpec,
        job: ResolvedJob,
        context: EngineContext,
        on_state: Callable[[JobState], None],
        plan: JobPlan | None,
    ) -> None:
        self.number = number
        self.spec = spec
        self.job = job
        if plan is not None:
            self.job = replace(job, devices=tuple(each.device for each in plan.assignments))
        self.context = context
        self.on_state = on_state
        self._is_small = plan is not None
        # Of random projections: unpredictable for workloads
        self.verification_seed = context.verification_secret ^ number
        self.arrays: JobArrays = job_arrays(self.job, spec, context.arena)
        self.failures = JobFailures(context.failures, job.kind, lambda: context.fleet.infos)
        # The last attempt with a plan: the subject of reports and explanations
        self.latest: Attempt | None = None
        # Inputs have been generated and outputs poisoned; a later attempt skips this
        self.inputs_filled = False
        # Small jobs that ran beside this one, so its times aren't those of a job that runs alone
        self.small_jobs_beside = 0
        # Devices that the user doesn't want to be used at present
        self.disabled: frozenset[str] = frozenset()
        # The job ends with it once its state is saved; `stop_begun_at`: when that was requested
        self.stop_error: BaseException | None = None
        self.stop_begun_at = math.inf
        self._notes: list[str] = []
        self._omitted_notes = 0
        self._reported_at = -math.inf
        self._slow_steps: dict[str, float] = {}
        """What devices said before a slow step -> seconds until the next progress."""
        self._slow_step = ("", 0.0)
        self.iterations: IterationState | None = None
        self.saves: Saves | None = None
        declared = self.job.iterative
        if declared is not None and isinstance(self.arrays, IterativeArrays):
            self.iterations = IterationState(
                self.job.devices, self.job.load, declared.granule, declared.max_iterations
            )
            self.saves = Saves(spec, self.arrays, context, self.iterations, self.replace_note)

    @property
    def shares_cores(self) -> bool:
        """Whether a core may compute for another job at the same time."""
        return self._is_small or self.small_jobs_beside > 0

    def steals(self, infos: Sequence[DeviceInfo]) -> bool:
        """Return whether to steal: only between devices on the wall clock, not on virtual ones."""
        is_wall = {info.clock for info in infos} == {"wall"}
        return self.context.stealing and not self.job.measure and is_wall

    # ---- reports

    def note(self, text: str) -> None:
        self._notes.append(text)
        if len(self._notes) > MAX_NOTES:
            del self._notes[MAX_NOTES // 2]
            self._omitted_notes += 1

    def replace_note(self, beginning: str, text: str) -> None:
        """Add a note instead of the previous one with this beginning."""
        self._notes = [note for note in self._notes if not note.startswith(beginning)]
        self.note(text)

    @property
    def notes(self) -> tuple[str, ...]:
        notes = list(self._notes)
        if self._omitted_notes:
            notes.insert(MAX_NOTES // 2, f"({counted(self._omitted_notes, 'note')} omitted here)")
        notes += [
            f"{text.rstrip(' .')}: {format_seconds(seconds)}"
            for text, seconds in self._slow_steps.items()
            if seconds >= MIN_STEP_SECONDS
        ]
        if self.small_jobs_beside:
            notes.append(f"{counted(self.small_jobs_beside, 'small job')} ran beside it")
        return tuple(notes)

    def report_progress(self, attempt: Attempt, text: str = "", *, force: bool = False) -> None:
        """Report the state, at most every PROGRESS_SECONDS unless forced."""
        now = time.monotonic()
        self._measure_slow_step(text, now)
        if not force and now - self._reported_at < PROGRESS_SECONDS:
            return
        self._reported_at = now
        if self.iterations is not None:
            self.on_state(self._iterating(self.iterations, attempt.stage, text))
            return
        computation = attempt.computation
        devices = computation.dispatcher.progress() if computation is not None else ()
        predicted = attempt.plan.predicted_seconds
        self.on_state(Running(self.number, attempt.stage, devices, predicted, text))

    def _measure_slow_step(self, text: str, now: float) -> None:
        before, began = self._slow_step
        if before and (before in self._slow_steps or len(self._slow_steps) < MAX_SLOW_STEPS):
            self._slow_steps[before] = self._slow_steps.get(before, 0.0) + now - began
        self._slow_step = (text, now)

    def _iterating(self, iterations: IterationState, stage: str, text: str) -> Running:
        rows = iterations.sums.rows
        return Running(
            self.number,
            stage,
            tuple(DeviceProgress(device, count, count) for device, count in rows.items()),
            text=text,
            iteration=max(0, iterations.reported),
            max_iterations=iterations.max_iterations,
            residual=None if math.isnan(iterations.residual) else iterations.residual,
            iterations_per_second=iterations.rate.per_second,
        )

    def snapshot(self) -> JobSnapshot:
        plan = self.latest.plan if self.latest else JobPlan((), None)
        times = self.latest.times if self.latest else {}
        history = self.iterations.history.history() if self.iterations else None
        return JobSnapshot.of(self.number, self.job, plan, times, self.notes, history)


# ---- the report


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
        notes=(*job.notes, *running.notes, *plan.reasons),
        outputs={name: output.path for name, output in job.outputs.items()},
        error=error,
    )
    if running.iterations is None:
        return report
    return _with_iterations(report, running.iterations, attempt)


def device_report(name: str, run: DeviceRun) -> DeviceReport:
    copy_in = compute = copy_out = 0.0
    late = 0
    for _, chunk in run.chunks:
        compute += chunk.compute[1] - chunk.compute[0]
        copy_in += chunk.copy_in[1] - chunk.copy_in[0] if chunk.copy_in else 0.0
        copy_out += chunk.copy_out[1] - chunk.copy_out[0] if chunk.copy_out else 0.0
        late += chunk.late
    return DeviceReport(
        device=name,
        kind=run.info.kind,
        variant=_variants(run),
        share=run.share,
        seconds=run.seconds,
        chunks=tuple([units for units, _ in run.chunks]),
        predicted_seconds=run.assignment.predicted_seconds,
        copy_in_seconds=copy_in,
        compute_seconds=compute,
        copy_out_seconds=copy_out,
        late=late,
    )


def _variants(run: DeviceRun) -> str:
    """Return the variant that computed the chunks; in a race all of them, "a, b"."""
    variants = run.assignment.variants
    if len(variants) == 1:
        return variants[0]
    kernels = sorted({times.kernel for _, times in run.chunks}) or [0]
    return ", ".join(variants[kernel] for kernel in kernels)


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
