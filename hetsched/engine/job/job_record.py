"""The data of one job's state machine besides the current stage. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from hetsched.device import DeviceInfo
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.deadlines import DEFAULT_DEADLINES, Deadlines
from hetsched.engine.iterating.checkpointing import CheckpointSchedule
from hetsched.engine.iterating.iteration_state import IterationState
from hetsched.engine.job.commands import JobCommand, ReportProgress, WaitForProcesses
from hetsched.engine.job.fill_and_check import helpers
from hetsched.engine.job.retries.device_failures import DeviceFailures
from hetsched.engine.job.retries.retry_policy import RetryCounts
from hetsched.engine.job.states import (
    Attempt,
    Computing,
    DeviceStage,
    JobStage,
    New,
    Verifying,
    WaitingForProcesses,
)
from hetsched.job import CHECKPOINT_SECONDS, DeviceProgress, JobSpec, Running
from hetsched.units import counted

MAX_NOTES = 100
"""Of one job: the first half and the last ones are kept. Arbitrary."""
PROGRESS_SECONDS = 0.1
"""Minimum interval between two progress states of a job."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Constants of one job.

    `verification_seed` seeds random projections, unpredictably for workloads.

    `stealing`: idle devices may steal chunks.

    `deadlines`: of device processes.

    `is_side`: it runs beside a larger job, on one core.
    """

    number: int
    spec: JobSpec
    job: ResolvedJob
    verification_seed: int
    stealing: bool
    deadlines: Deadlines = DEFAULT_DEADLINES
    is_side: bool = False


@dataclass(slots=True)
class JobRecord:
    """The state of a job, with data that outlive a stage.

    Attributes
    ----------
    notes : list of str
        About devices that failed, for the report.
    inputs_filled : bool
        Inputs have been generated and outputs poisoned; a later attempt skips this.
    latest : Attempt or None
        The last attempt with a plan: the subject of reports and explanations.
    reported_at : float, seconds
        When progress was last reported.
    side_jobs : int
        Small jobs that ran beside this one, so its times aren't those of a job that runs alone.
    disabled : frozenset of str
        Devices that the user doesn't want to be used at present.
    iterations : IterationState or None
        Of an iterative job.
    stop_error : BaseException or None
        The job ends with it once its state is saved.
    stop_begun_at : float, seconds
        When that was requested.
    """

    settings: JobSettings
    state: JobStage = field(default_factory=New)
    retries: RetryCounts = field(default_factory=RetryCounts)
    notes: list[str] = field(default_factory=list)
    omitted_notes: int = 0
    failures: DeviceFailures = field(default_factory=DeviceFailures)
    inputs_filled: bool = False
    latest: Attempt | None = None
    reported_at: float = -math.inf
    side_jobs: int = 0
    disabled: frozenset[str] = frozenset()
    iterations: IterationState | None = None
    stop_error: BaseException | None = None
    stop_begun_at: float = math.inf

    def __post_init__(self) -> None:
        job = self.settings.job
        if job.iterative is not None:
            self.iterations = IterationState(
                job.devices, job.load, job.iterative.granule, job.iterative.max_iterations
            )
            if self.settings.spec.checkpoint:
                every = self.settings.spec.every
                self.iterations.checkpoints = CheckpointSchedule(
                    CHECKPOINT_SECONDS if every is None else every
                )

    @property
    def shares_cores(self) -> bool:
        """Whether a core may compute for another job at the same time."""
        return self.settings.is_side or self.side_jobs > 0

    def note(self, text: str) -> None:
        """Add a note for the report."""
        self.notes.append(text)
        if len(self.notes) > MAX_NOTES:
            del self.notes[MAX_NOTES // 2]
            self.omitted_notes += 1

    @property
    def report_notes(self) -> tuple[str, ...]:
        """Return the notes for the report."""
        notes = list(self.notes)
        if self.omitted_notes:
            omitted = f"({counted(self.omitted_notes, 'note')} omitted here)"
            notes.insert(MAX_NOTES // 2, omitted)
        if self.side_jobs:
            notes.append(f"{counted(self.side_jobs, 'small job')} ran beside it")
        return tuple(notes)

    def steals(self, infos: Sequence[DeviceInfo]) -> bool:
        """Return whether to steal: only between devices on the wall clock, not on virtual ones."""
        measuring = bool(self.settings.job.measure)
        is_wall = {info.clock for info in infos} == {"wall"}
        return self.settings.stealing and not measuring and is_wall


def helper_devices(attempt: Attempt) -> list[str]:
    """Return the prepared devices that fill and check."""
    return helpers(
        [attempt.infos[name] for name in attempt.assignments if name in attempt.prepared]
    )


def progress(
    record: JobRecord, state: DeviceStage, now: float, text: str = "", *, force: bool = False
) -> list[JobCommand]:
    """Report `state` to the job's subscribers, at most every PROGRESS_SECONDS unless forced."""
    if not force and now - record.reported_at < PROGRESS_SECONDS:
        return []
    record.reported_at = now
    if record.iterations is not None:
        return [ReportProgress(_iterating(record, record.iterations, state, text))]
    computation = state.computation if isinstance(state, (Computing, Verifying)) else None
    devices = computation.progress() if computation else ()
    predicted = state.attempt.plan.predicted_seconds
    return [ReportProgress(Running(record.settings.number, state.stage, devices, predicted, text))]


def _iterating(
    record: JobRecord, iterations: IterationState, state: DeviceStage, text: str
) -> Running:
    rows = iterations.sums.rows
    return Running(
        record.settings.number,
        state.stage,
        tuple(DeviceProgress(device, count, count) for device, count in rows.items()),
        text=text,
        iteration=max(0, iterations.reported),
        max_iterations=iterations.max_iterations,
        residual=None if math.isnan(iterations.residual) else iterations.residual,
        iterations_per_second=iterations.rate.per_second,
    )


def wait_for_processes(record: JobRecord, *, with_restarts: bool = False) -> list[JobCommand]:
    """Wait for the processes of the devices that the job may use."""
    record.state = WaitingForProcesses()
    devices = record.failures.remaining(record.settings.job.devices)
    return [WaitForProcesses(devices, with_restarts)]
