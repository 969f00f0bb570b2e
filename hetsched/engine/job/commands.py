"""What a job's state machine asks for; `driver.py` executes it. Pure records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hetsched.device import Chunk, DeviceInfo
from hetsched.engine.job.fill_and_check import CheckOrder, FillOrder
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.errors import ErrorRecord
from hetsched.job import JobReport, Running
from hetsched.planner.job_planner import Assignment


@dataclass(frozen=True, slots=True)
class AllocateArrays:
    """Allocate generated inputs and results in the arena."""


@dataclass(frozen=True, slots=True)
class WaitForProcesses:
    """Answered by ProcessesSettled, perhaps at once."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MakePlan:
    """Answered by PlanReady or PlanFailed; at once if the plan was made ahead."""

    infos: tuple[DeviceInfo, ...]


@dataclass(frozen=True, slots=True)
class StartProcesses:
    """Start those processes that only run when they are needed. Answered by ProcessesStarted."""

    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class PrepareDevice:
    """Attach the job's arrays and prepare the kernel. `answer`: a Prepared message is wanted."""

    attempt_id: int
    assignment: Assignment
    answer: bool


@dataclass(frozen=True, slots=True)
class FillUnits:
    attempt_id: int
    order: FillOrder


@dataclass(frozen=True, slots=True)
class RunChunks:
    attempt_id: int
    device: str
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True)
class CheckUnits:
    attempt_id: int
    order: CheckOrder
    seed: int


@dataclass(frozen=True, slots=True)
class FenceDevice:
    """Have the device finish the chunks it has begun and drop the others; it answers Fenced."""

    attempt_id: int
    device: str


@dataclass(frozen=True, slots=True)
class PublishOutputs:
    """Give the output files their names. Answered by Published or PublishFailed."""


@dataclass(frozen=True, slots=True)
class ReportProgress:
    state: Running


@dataclass(frozen=True, slots=True)
class RememberKernels:
    """The devices have prepared the kernels of these assignments."""

    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class ExcludeVariant:
    """`variant` doesn't work on devices like `info`: plan without it from now on."""

    info: DeviceInfo
    variant: str


@dataclass(frozen=True, slots=True)
class ReduceMemory:
    """`device` ran out of memory with `memory` bytes for slots: plan for less from now on."""

    device: str
    memory: int


@dataclass(frozen=True, slots=True)
class LogMessage:
    """`error`: its traceback is logged too."""

    level: Literal["info", "warning", "error"]
    text: str
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class FinishJob:
    """Release everything that the job holds, then report its last state. Always the last command.

    Attributes
    ----------
    error : ErrorRecord or None
        None: the job is done, and its results are handed over.
    attempt_id : int or None
        The attempt that `devices` were prepared for; None: no device was.
    measured : mapping or None
        Device -> what it did, to learn from; None: nothing can be learnt from this run.
    """

    report: JobReport
    error: ErrorRecord | None
    attempt_id: int | None
    devices: tuple[str, ...]
    measured: Mapping[str, DeviceRun] | None = None


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
    | PublishOutputs
    | ReportProgress
    | RememberKernels
    | ExcludeVariant
    | ReduceMemory
    | LogMessage
    | FinishJob
)
