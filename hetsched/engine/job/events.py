"""What can happen to a job: the events that its state machine handles. Pure records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hetsched.device import DeviceInfo
from hetsched.engine.job.commands import JobCommand
from hetsched.planner.job_planner import JobPlan
from hetsched.transport import device_messages


@dataclass(frozen=True, slots=True)
class Begin:
    """It is the job's turn."""


@dataclass(frozen=True, slots=True)
class ProcessesSettled:
    """It is clear which device processes can be used.

    Attributes
    ----------
    attempt_id : int
        A number never used before: messages of the next attempt carry it.
    infos : tuple of DeviceInfo
        The usable devices among those that the job may use.
    absent : mapping
        Device -> why it can't be used.
    """

    attempt_id: int
    infos: tuple[DeviceInfo, ...]
    absent: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlanReady:
    plan: JobPlan


@dataclass(frozen=True, slots=True)
class PlanFailed:
    error: BaseException


@dataclass(frozen=True, slots=True)
class ProcessesStarted:
    """The processes of the assigned devices have started, or failed to.

    Attributes
    ----------
    ready : frozenset of str
        Devices that take commands.
    infos : mapping
        Assigned device -> its description, complete now that its process runs.
    kernels_cached : bool
        These devices have prepared these kernels before, so preparing them is quick.
    """

    ready: frozenset[str]
    infos: Mapping[str, DeviceInfo]
    kernels_cached: bool


@dataclass(frozen=True, slots=True)
class DeviceMessage:
    """`device` has sent `message`, perhaps about an earlier attempt."""

    device: str
    message: device_messages.Event


@dataclass(frozen=True, slots=True)
class DevicesLost:
    """The process of `devices` has died. `gone`: devices of the job that won't come back."""

    devices: tuple[str, ...]
    reason: str
    gone: frozenset[str]


@dataclass(frozen=True, slots=True)
class DevicesJoined:
    """The process of `devices` has started, or started again; it knows nothing of the job."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Published:
    """All output files have their names."""


@dataclass(frozen=True, slots=True)
class PublishFailed:
    error: BaseException


@dataclass(frozen=True, slots=True)
class AbortRequested:
    """Stop at a chunk's edge; the job ends with `error`."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class StageFailed:
    """An exception in a transition, or in the execution of `command`."""

    error: Exception
    command: JobCommand | None = None


JobEvent = (
    Begin
    | ProcessesSettled
    | PlanReady
    | PlanFailed
    | ProcessesStarted
    | DeviceMessage
    | DevicesLost
    | DevicesJoined
    | Published
    | PublishFailed
    | AbortRequested
    | StageFailed
)
