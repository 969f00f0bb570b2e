"""What a job's state machine asks for; `driver.py` executes it. Pure records.

Structs, because they are made several times as fast as frozen dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from hetsched.device import Chunk, DeviceInfo
from hetsched.engine.job.fill_and_check import CheckOrder, FillOrder
from hetsched.engine.planning.device_run import DeviceRun
from hetsched.errors import ErrorRecord
from hetsched.job import JobReport, Running
from hetsched.planner.job_planner import Assignment


class AllocateArrays(msgspec.Struct, frozen=True):
    """Allocate generated inputs and results in the arena."""


class WaitForProcesses(msgspec.Struct, frozen=True):
    """Answered by ProcessesSettled, perhaps at once."""

    devices: tuple[str, ...]


class MakePlan(msgspec.Struct, frozen=True):
    """Answered by PlanReady or PlanFailed; at once if the plan was made ahead."""

    infos: tuple[DeviceInfo, ...]


class StartProcesses(msgspec.Struct, frozen=True):
    """Start those processes that only run when they are needed. Answered by ProcessesStarted."""

    assignments: tuple[Assignment, ...]


class PrepareDevice(msgspec.Struct, frozen=True):
    """Attach the job's arrays and prepare the kernel. `answer`: a Prepared message is wanted."""

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


class CheckUnits(msgspec.Struct, frozen=True):
    attempt_id: int
    order: CheckOrder
    seed: int


class FenceDevice(msgspec.Struct, frozen=True):
    """Have the device finish the chunks it has begun and drop the others; it answers Fenced."""

    attempt_id: int
    device: str


class PublishOutputs(msgspec.Struct, frozen=True):
    """Give the output files their names. Answered by Published or PublishFailed."""


class ReportProgress(msgspec.Struct, frozen=True):
    state: Running


class RememberKernels(msgspec.Struct, frozen=True):
    """The devices have prepared the kernels of these assignments."""

    assignments: tuple[Assignment, ...]


class ExcludeVariant(msgspec.Struct, frozen=True):
    """`variant` doesn't work on devices like `info`: plan without it from now on."""

    info: DeviceInfo
    variant: str


class ReduceMemory(msgspec.Struct, frozen=True):
    """`device` ran out of memory with `memory` bytes for slots: plan for less from now on."""

    device: str
    memory: int


class LogMessage(msgspec.Struct, frozen=True):
    """`error`: its traceback is logged too."""

    level: Literal["info", "warning", "error"]
    text: str
    error: BaseException | None = None


class FinishJob(msgspec.Struct, frozen=True):
    """Release everything that the job holds, then report its last state. Always the last command.

    Attributes
    ----------
    error : ErrorRecord or None
        None: the job is done, and its results are handed over.
    attempt_id : int or None
        The attempt that `devices` were prepared for; None: no device was.
    runs : mapping or None
        Device -> what it did, to learn from; None: nothing can be learnt from this run.
    """

    report: JobReport
    error: ErrorRecord | None
    attempt_id: int | None
    devices: tuple[str, ...]
    runs: Mapping[str, DeviceRun] | None = None


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
