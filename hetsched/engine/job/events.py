"""Events of a job's state machine. Pure records.

Structs, because they are several times faster to create than frozen dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hetsched.device import DeviceInfo
from hetsched.engine.job.commands import JobCommand
from hetsched.partition.iterations import IterationBalance
from hetsched.planner.job_planner import JobPlan
from hetsched.transport import device_messages


class Begin(msgspec.Struct, frozen=True):
    """The job is first in the queue."""


class ProcessesSettled(msgspec.Struct, frozen=True):
    """The set of usable device processes is known.

    Attributes
    ----------
    attempt_id : int
        A new number for the messages of the next attempt.
    infos : tuple of DeviceInfo
        Usable devices among the job's.
    absent : mapping
        Unusable device -> reason.
    excluded : mapping
        Device that has failed too often -> reason; not in `infos`.
    starting : frozenset of str
        Devices whose process isn't ready yet, or not again; not in `infos`.
    disabled : frozenset of str
        By the user. In `infos` only of an iterative job, which they may join later.
    """

    attempt_id: int
    infos: tuple[DeviceInfo, ...]
    absent: Mapping[str, str]
    excluded: Mapping[str, str] = {}
    starting: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()


class InputsLoaded(msgspec.Struct, frozen=True):
    """The inputs of an iterative job are in its segments."""


class LoadFailed(msgspec.Struct, frozen=True):
    error: BaseException


class PlanReady(msgspec.Struct, frozen=True):
    """`balance`: of an iterative job, with its first split."""

    plan: JobPlan
    balance: IterationBalance | None = None


class PlanFailed(msgspec.Struct, frozen=True):
    error: BaseException


class ProcessesStarted(msgspec.Struct, frozen=True):
    """The processes of the assigned devices have started or failed to start.

    Attributes
    ----------
    ready : frozenset of str
        Devices that accept commands.
    infos : mapping
        Assigned device -> its description, complete once its process runs.
    kernels_cached : bool
        These devices have prepared these kernels and mapped large arrays before, so preparation
        is quick.
    """

    ready: frozenset[str]
    infos: Mapping[str, DeviceInfo]
    kernels_cached: bool


class DeviceMessage(msgspec.Struct, frozen=True):
    """`device` has sent `message`, possibly about an earlier attempt."""

    device: str
    message: device_messages.Event


class DevicesLost(msgspec.Struct, frozen=True):
    """The process of `devices` died.

    Attributes
    ----------
    abandoned : frozenset of str
        Devices of the job that won't restart.
    culprits : tuple of str
        Those of `devices` that are known to have caused it; () if unknown.
    counts : bool
        Whether this job may be the cause; not if a side job may be.
    """

    devices: tuple[str, ...]
    reason: str
    abandoned: frozenset[str]
    culprits: tuple[str, ...] = ()
    counts: bool = True


class DeviceExcluded(msgspec.Struct, frozen=True):
    """`device` has failed too often for this kind of job, or in general."""

    device: str
    reason: str


class EpochSettled(msgspec.Struct, frozen=True):
    """No device of the epoch computes any more.

    Attributes
    ----------
    finished : int
        The last iteration that is complete; -1: not even the start is.
    ended : int or None
        The iteration after which the finish stages have begun; None: they haven't.
    saved : int or None
        The iteration to go back to, since a lost device had what came after it; None: nothing is
        lost.
    """

    finished: int
    ended: int | None
    saved: int | None = None


class StateCopied(msgspec.Struct, frozen=True):
    """The state has been copied for a checkpoint, or can't be: devices may go on."""


class CheckpointWritten(msgspec.Struct, frozen=True):
    """A checkpoint is complete; `nbytes`: of its arrays."""

    iteration: int
    nbytes: int


class CheckpointFailed(msgspec.Struct, frozen=True):
    """A checkpoint couldn't be written; the one before is unharmed."""

    error: BaseException


class StateRestored(msgspec.Struct, frozen=True):
    """The job's arrays are as after `iteration`; `residual`: then, None if there is none."""

    iteration: int
    residual: float | None


class RestoreFailed(msgspec.Struct, frozen=True):
    error: BaseException


class DevicesSwitched(msgspec.Struct, frozen=True):
    """The user has disabled devices, or enabled them again.

    `disabled`: all devices that jobs may not use now.
    """

    disabled: frozenset[str]


class DevicesJoined(msgspec.Struct, frozen=True):
    """The process of `devices` has started or restarted, without any state of the job."""

    devices: tuple[str, ...]


class Published(msgspec.Struct, frozen=True):
    """All output files have their names."""


class PublishFailed(msgspec.Struct, frozen=True):
    error: BaseException


class AbortRequested(msgspec.Struct, frozen=True):
    """Stop between chunks; the job ends with `error`.

    `saves_state`: after a checkpoint, if it is an iterative job with checkpoints.
    """

    error: BaseException
    saves_state: bool = False


class DeadlinePassed(msgspec.Struct, frozen=True):
    """The time of the last SetDeadline has come.

    `arrivals`: device -> how often it has arrived at the end of a stage in the present epoch.
    """

    arrivals: Mapping[str, int] = {}


class StageFailed(msgspec.Struct, frozen=True):
    """An exception in a transition or in the execution of `command`."""

    error: Exception
    command: JobCommand | None = None


JobEvent = (
    Begin
    | ProcessesSettled
    | InputsLoaded
    | LoadFailed
    | PlanReady
    | PlanFailed
    | ProcessesStarted
    | DeviceMessage
    | DevicesLost
    | DeviceExcluded
    | DevicesJoined
    | DevicesSwitched
    | EpochSettled
    | StateCopied
    | CheckpointWritten
    | CheckpointFailed
    | StateRestored
    | RestoreFailed
    | Published
    | PublishFailed
    | AbortRequested
    | DeadlinePassed
    | StageFailed
)
