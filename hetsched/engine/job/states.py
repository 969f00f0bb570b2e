"""The states of a running job; each record holds only what is valid in that state. Pure.

The records are frozen; sets, dicts, `PendingAnswers` and `Computation` in them change with events.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.engine.iterating.epoch import Epoch
from hetsched.engine.iterating.epoch_progress import EpochProgress
from hetsched.engine.iterating.iteration_log import IterationLog
from hetsched.engine.job.computation import Computation
from hetsched.engine.job.fill_and_check import FillOrder, VerificationResult
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.job import JobReport
from hetsched.planner.job_planner import Assignment, JobPlan


class Attempt(msgspec.Struct, frozen=True):
    """One start of a job, from its plan on. A job that starts over begins another attempt.

    Attributes
    ----------
    id : int
        In every message to and from devices: late answers to another attempt are dropped.
    infos : mapping
        Device -> its description.
    assignments : mapping
        Device -> its assignment; only devices with chunks.
    live : set of str
        Assigned devices with a running process.
    prepared : set of str
        Live devices with a prepared kernel.
    times : mapping
        Device -> (units, times) of its finished chunks.
    failed_variants : set of str
        Variants that don't work on a device; another one computes their chunks.
    """

    id: int
    plan: JobPlan
    infos: dict[str, DeviceInfo]
    assignments: Mapping[str, Assignment]
    live: set[str] = msgspec.field(default_factory=set)
    prepared: set[str] = msgspec.field(default_factory=set)
    times: dict[str, list[tuple[int, ChunkTimes]]] = msgspec.field(default_factory=dict)
    failed_variants: set[str] = msgspec.field(default_factory=set)

    def remove(self, devices: Iterable[str]) -> None:
        """Record that the processes of `devices` have ended."""
        self.live.difference_update(devices)
        self.prepared.difference_update(devices)

    def to_prepare(self, device: str) -> Assignment:
        """Return the assignment of `device` with "" for variants that have failed.

        Unless it has no other: they may have failed on another core only.
        """
        assignment = self.assignments[device]
        if self.failed_variants.isdisjoint(assignment.variants):
            return assignment
        if self.failed_variants.issuperset(assignment.variants):
            return assignment
        names = ["" if v in self.failed_variants else v for v in assignment.variants]
        return dataclasses.replace(assignment, variant=names[0], rivals=tuple(names[1:]))

    def runs(self) -> dict[str, DeviceRun]:
        """Device -> its part of the run."""
        return {
            device: DeviceRun(assignment, self.infos[device], tuple(self.times.get(device, ())))
            for device, assignment in self.assignments.items()
        }


class PendingAnswers:
    """Counts of pending answers by device.

    Parameters
    ----------
    devices : iterable of str
        One entry per answer expected.
    since : float, seconds
        When the answers were requested.
    """

    def __init__(self, devices: Iterable[str], since: float) -> None:
        self._counts: dict[str, int] = {}
        for device in devices:
            self._counts[device] = self._counts.get(device, 0) + 1
        self._since = dict.fromkeys(self._counts, since)

    def __bool__(self) -> bool:
        """Return whether an answer is pending."""
        return bool(self._counts)

    def answered(self, device: str, now: float) -> bool:
        """Count one answer; return whether it was expected."""
        self._since[device] = now
        count = self._counts.get(device, 0)
        if count > 1:
            self._counts[device] = count - 1
        else:
            self._counts.pop(device, None)
        return count > 0

    def progressed(self, device: str, now: float) -> None:
        """Record that `device` has answered or reported progress."""
        self._since[device] = now

    def waits(self) -> dict[str, float]:
        """Return device -> since when an answer is pending without progress."""
        return {device: self._since[device] for device in self._counts}

    def drop(self, devices: Iterable[str]) -> None:
        """Expect no further answers from `devices`."""
        for device in devices:
            self._counts.pop(device, None)


class New(msgspec.Struct, frozen=True):
    """Nothing has been allocated."""


class LoadingInputs(msgspec.Struct, frozen=True):
    """Inputs are copied to the segments of an iterative job; `error`: then end with it."""

    error: BaseException | None = None


class WaitingForProcesses(msgspec.Struct, frozen=True):
    """Device processes are starting."""


class Planning(msgspec.Struct, frozen=True):
    """The planner is planning for the devices of `infos`; others are `starting` or `absent`."""

    attempt_id: int
    infos: dict[str, DeviceInfo]
    starting: frozenset[str] = frozenset()
    absent: Mapping[str, str] = {}


class DiscardingPlan(msgspec.Struct, frozen=True):
    """Aborted during planning: the job ends with `error` when the planner answers."""

    error: BaseException


class StartingProcesses(msgspec.Struct, frozen=True):
    """On-demand processes of assigned devices are starting."""

    attempt: Attempt


class Preparing(msgspec.Struct, frozen=True):
    """Devices prepare the kernel. `fill_orders`: what to fill next."""

    stage: ClassVar[str] = "preparing"

    attempt: Attempt
    fill_orders: Sequence[FillOrder]
    pending: PendingAnswers


class Filling(msgspec.Struct, frozen=True):
    """Devices generate inputs and poison outputs."""

    stage: ClassVar[str] = "generating"

    attempt: Attempt
    pending: PendingAnswers


class ReloadingResidents(msgspec.Struct, frozen=True):
    """Devices prepare again: resident arrays are copied to a device when it is prepared."""

    stage: ClassVar[str] = "generating"

    attempt: Attempt
    pending: PendingAnswers


class Computing(msgspec.Struct, frozen=True):
    """Chunks run. The only timed stage.

    `joining`: restarted device -> when it was asked to prepare.

    `held`: restarted devices that may not compute before another has finished a chunk.
    """

    stage: ClassVar[str] = "computing"

    attempt: Attempt
    computation: Computation
    joining: dict[str, float] = msgspec.field(default_factory=dict)
    held: list[str] = msgspec.field(default_factory=list)


class Iterating(msgspec.Struct, frozen=True):
    """Devices compute iterations. The timed stage of an iterative job.

    Attributes
    ----------
    epoch : Epoch or None
        The present or last one; None: the first one hasn't begun.
    log : IterationLog
        What the epoch's devices have reported.
    running : set of str
        Devices of the epoch that haven't stopped.
    stops : set of str
        Why others have stopped (`StopReason`).
    joining : dict
        Restarted device -> when it was asked to prepare.
    progress : EpochProgress
        When devices last got on.
    """

    stage: ClassVar[str] = "computing"

    attempt: Attempt
    epoch: Epoch | None
    log: IterationLog
    running: set[str]
    progress: EpochProgress
    stops: set[str] = msgspec.field(default_factory=set)
    joining: dict[str, float] = msgspec.field(default_factory=dict)


class Verifying(msgspec.Struct, frozen=True):
    """Devices check the result. `computation`: None for an iterative job."""

    stage: ClassVar[str] = "verifying"

    attempt: Attempt
    computation: Computation | None
    pending: PendingAnswers
    result: VerificationResult


class Publishing(msgspec.Struct, frozen=True):
    """Output files get their names; too late to abort.

    `runs`: for learning; None if a device was lost. `error`: the job fails all the same, since its
    method hasn't converged.
    """

    attempt: Attempt
    report: JobReport
    runs: Mapping[str, DeviceRun] | None
    error: BaseException | None = None


class StartOver(msgspec.Struct, frozen=True):
    """Plan again and make another attempt."""


class Fail(msgspec.Struct, frozen=True):
    """End with `error`."""

    error: BaseException


class Stopping(msgspec.Struct, frozen=True):
    """Waiting until no device writes to the job's arrays, before the next step.

    `seconds`: how long a device may take.
    """

    attempt: Attempt
    pending: PendingAnswers
    next_step: StartOver | Fail
    seconds: float


class Ended(msgspec.Struct, frozen=True):
    """All resources are released; events have no effect."""


DeviceStage = Preparing | Filling | ReloadingResidents | Computing | Iterating | Verifying
"""States in which devices work for the job."""

JobStage = (
    New
    | LoadingInputs
    | WaitingForProcesses
    | Planning
    | DiscardingPlan
    | StartingProcesses
    | DeviceStage
    | Publishing
    | Stopping
    | Ended
)
