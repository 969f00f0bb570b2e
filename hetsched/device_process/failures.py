"""Classification of failures in a device process, for the engine."""

from __future__ import annotations

from hetsched.devices.base import DeviceFault, DeviceOutOfMemory
from hetsched.errors import (
    CantCreate,
    ErrorRecord,
    HetschedError,
    IOFailure,
    JobFailed,
    UsageError,
    text_of,
    to_record,
)
from hetsched.plug_in_errors import plug_in_error
from hetsched.transport.device_messages import CommandFailed, FailureCause

MAX_MESSAGE_CHARACTERS = 2000
"""Maximum length of an error's text: a message must fit into the socket."""


def command_failed(
    attempt: int,
    error: BaseException,
    chunk: int | None = None,
    *,
    has_link: bool = False,
) -> CommandFailed:
    """Return the event that reports `error`."""
    return CommandFailed(attempt, failure_cause(error, has_link), error_record(error), chunk)


def error_record(error: BaseException) -> ErrorRecord:
    """Return `error` as a record of bounded length."""
    record = to_record(as_hetsched_error(error))
    message, frames = record.message, record.frames
    return ErrorRecord(
        record.code, message[:MAX_MESSAGE_CHARACTERS], frames[-MAX_MESSAGE_CHARACTERS:]
    )


def failure_cause(error: BaseException, has_link: bool) -> FailureCause:
    """Return the class of `error`; see `FailureCause`.

    A MemoryError of a kernel that runs in host memory is the kernel's: a smaller plan won't help.
    """
    if isinstance(error, DeviceFault):
        return "fault"
    if isinstance(error, DeviceOutOfMemory) or (isinstance(error, MemoryError) and has_link):
        return "memory"
    if isinstance(error, IOFailure | CantCreate):
        return "io"
    return "variant" if isinstance(error, UsageError) else "kernel"


def as_hetsched_error(error: BaseException) -> HetschedError:
    """Return `error` as one of ours: an error of a kernel is the job's failure, not our bug."""
    if isinstance(error, DeviceOutOfMemory | DeviceFault):
        return JobFailed(text_of(error))
    return plug_in_error("the kernel", error)
