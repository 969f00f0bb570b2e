"""What can happen to a job: the events that its state machine handles. Pure records.

Structs, because they are made several times as fast as frozen dataclasses.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hetsched.device import DeviceInfo
from hetsched.engine.job.commands import JobCommand
from hetsched.planner.job_planner import JobPlan
from hetsched.transport import device_messages


class Begin(msgspec.Struct, frozen=True):
    """It is the job's turn."""


class ProcessesSettled(msgspec.Struct, frozen=True):
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


class PlanReady(msgspec.Struct, frozen=True):
    plan: JobPlan


class PlanFailed(msgspec.Struct, frozen=True):
    error: BaseException


class ProcessesStarted(msgspec.Struct, frozen=True):
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


class DeviceMessage(msgspec.Struct, frozen=True):
    """`device` has sent `message`, perhaps about an earlier attempt."""

    device: str
    message: device_messages.Event


class DevicesLost(msgspec.Struct, frozen=True):
    """The process of `devices` has died. `abandoned`: devices of the job that won't come back."""

    devices: tuple[str, ...]
    reason: str
    abandoned: frozenset[str]


class DevicesJoined(msgspec.Struct, frozen=True):
    """The process of `devices` has started, or started again; it knows nothing of the job."""

    devices: tuple[str, ...]


class Published(msgspec.Struct, frozen=True):
    """All output files have their names."""


class PublishFailed(msgspec.Struct, frozen=True):
    error: BaseException


class AbortRequested(msgspec.Struct, frozen=True):
    """Stop at a chunk's edge; the job ends with `error`."""

    error: BaseException


class StageFailed(msgspec.Struct, frozen=True):
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
