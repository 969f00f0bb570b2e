"""Commands of a job's state machine, executed by `driver.py`. Pure records.

Structs, because they are several times faster to create than frozen dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from hetsched.device import Chunk, DeviceInfo
from hetsched.engine.iterating.epoch import Epoch
from hetsched.engine.job.fill_and_check import CheckOrder, FillOrder
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.errors import ErrorRecord
from hetsched.job import JobReport, Running
from hetsched.planner.job_planner import Assignment


class AllocateArrays(msgspec.Struct, frozen=True):
    """Allocate generated inputs and results in the arena."""


class WaitForProcesses(msgspec.Struct, frozen=True):
    """Answered by ProcessesSettled, possibly at once.

    `with_restarts`: wait for restarting processes, too, although others are ready.
    """

    devices: tuple[str, ...]
    with_restarts: bool = False


class MakePlan(msgspec.Struct, frozen=True):
    """Answered by PlanReady or PlanFailed; at once if the plan was made in advance."""

    infos: tuple[DeviceInfo, ...]


class StartProcesses(msgspec.Struct, frozen=True):
    """Start the needed on-demand processes. Answered by ProcessesStarted."""

    assignments: tuple[Assignment, ...]


class PrepareDevice(msgspec.Struct, frozen=True):
    """Attach the job's arrays and prepare the kernel. `answer`: request a Prepared message."""

    attempt_id: int
    assignment: Assignment
    answer: bool


class FillUnits(msgspec.Struct, frozen=True):
    attempt_id: int
    order: FillOrder


class RunChunks(msgspec.Struct, frozen=True):
    attempt_id: int
    device: str
    chunks: tuple[Chunk, ...]
    opens_tail: bool = False


class CheckUnits(msgspec.Struct, frozen=True):
    attempt_id: int
    order: CheckOrder
    seed: int


class FenceDevice(msgspec.Struct, frozen=True):
    """Finish the device's started chunks and drop the others. Answered by Fenced."""

    attempt_id: int
    device: str


class LoadInputs(msgspec.Struct, frozen=True):
    """Copy inputs of an iterative job to its segments. Answered by InputsLoaded or LoadFailed."""


class CancelLoading(msgspec.Struct, frozen=True):
    """End LoadInputs soon; it is still answered."""


class StartEpoch(msgspec.Struct, frozen=True):
    """Let devices compute iterations together. Answered by messages of each."""

    attempt_id: int
    epoch: Epoch


class ProposeSplit(msgspec.Struct, frozen=True):
    """Propose the rows of the epoch's devices from one of the next iterations on."""

    bounds: tuple[int, ...]


class AllowIteration(msgspec.Struct, frozen=True):
    """Let paced devices begin `iteration`."""

    iteration: int


class PauseEpoch(msgspec.Struct, frozen=True):
    """End the epoch after the present iteration or the next one."""


class AbortEpoch(msgspec.Struct, frozen=True):
    """End the epoch although a device doesn't come."""


class SettleEpoch(msgspec.Struct, frozen=True):
    """Look how far the devices of an epoch got, which have stopped or ended.

    Answered by EpochSettled, before anything else happens.
    """

    slots: tuple[int, ...]


class SaveState(msgspec.Struct, frozen=True):
    """Copy the state after `iteration`, and write a checkpoint of it.

    Answered by StateCopied, then by CheckpointWritten or CheckpointFailed. `slots`: of the devices
    with partial results of that iteration.
    """

    iteration: int
    slots: tuple[int, ...]
    residual: float


class RestoreState(msgspec.Struct, frozen=True):
    """Fill the job's arrays from a checkpoint. Answered by StateRestored or RestoreFailed."""

    path: str


class KillDevice(msgspec.Struct, frozen=True):
    """End the process of `device`, which has missed a deadline. Followed by its loss."""

    device: str
    reason: str


class SetDeadline(msgspec.Struct, frozen=True):
    """Answered by DeadlinePassed at the time `at`, in seconds, instead of any earlier one."""

    at: float


class PublishOutputs(msgspec.Struct, frozen=True):
    """Give the output files their names. Answered by Published or PublishFailed."""


class ReportProgress(msgspec.Struct, frozen=True):
    state: Running


class RecordKernels(msgspec.Struct, frozen=True):
    """Record that devices have prepared the kernels of these assignments.

    `infos`: device -> its description. `failed_variants`: except for these variants.
    """

    assignments: tuple[Assignment, ...]
    infos: Mapping[str, DeviceInfo]
    failed_variants: frozenset[str] = frozenset()


class ExcludeVariant(msgspec.Struct, frozen=True):
    """Exclude `variant`, which failed on devices like `info`, from later plans of such jobs."""

    info: DeviceInfo
    variant: str
    reason: str


class RecordFailure(msgspec.Struct, frozen=True):
    """Count a failure of `device` for this kind of job. May be followed by DeviceExcluded.

    `has_progressed`: it has finished chunks before, so it doesn't always fail.

    `is_death`: its process has ended, and not because of a deadline in the workload's code; only
    these count towards quarantine.
    """

    device: str
    reason: str
    has_progressed: bool = False
    is_death: bool = False


class ReduceMemory(msgspec.Struct, frozen=True):
    """Plan for less memory on `device`, which ran out with `memory` bytes for slots."""

    device: str
    memory: int


class LogMessage(msgspec.Struct, frozen=True):
    """Log `text`; with `error`, including its traceback."""

    level: Literal["info", "warning", "error"]
    text: str
    error: BaseException | None = None


class FinishJob(msgspec.Struct, frozen=True):
    """Release the job's resources, then report its last state. Always the last command.

    Attributes
    ----------
    error : ErrorRecord or None
        None: the job is done and its results are handed over.
    attempt_id : int or None
        The attempt for which `devices` were prepared; None: no device was prepared.
    runs : mapping or None
        Device -> its run, for learning; None: the run isn't suitable.
    keeps_results : bool
        Results are handed over although there is an error.
    """

    report: JobReport
    error: ErrorRecord | None
    attempt_id: int | None
    devices: tuple[str, ...]
    runs: Mapping[str, DeviceRun] | None = None
    keeps_results: bool = False


JobCommand = (
    AllocateArrays
    | WaitForProcesses
    | MakePlan
    | StartProcesses
    | PrepareDevice
    | FillUnits
    | RunChunks
    | CheckUnits
    | FenceDevice
    | LoadInputs
    | CancelLoading
    | StartEpoch
    | ProposeSplit
    | AllowIteration
    | PauseEpoch
    | AbortEpoch
    | SettleEpoch
    | SaveState
    | RestoreState
    | KillDevice
    | SetDeadline
    | PublishOutputs
    | ReportProgress
    | RecordKernels
    | ExcludeVariant
    | RecordFailure
    | ReduceMemory
    | LogMessage
    | FinishJob
)
