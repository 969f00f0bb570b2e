"""The one error tree, and the exit code of each branch.

::

    HetschedError ................ 70  base class, never raised
     +- JobFailed ................. 1  a kernel or the verification failed
     +- UsageError ................ 2  malformed request: flag, size, name
     +- DataError ................ 65  wrong shape, dtype or file; too large for this machine
     +- InputMissing ............. 66  input, job or config file is missing or unreadable
     +- Unavailable .............. 69  no daemon; a device that this machine lacks
     +- InternalError ............ 70  our bug
     +- CantCreate ............... 73  output exists or can't be created
     +- IOFailure ................ 74  read or write error during the job
     +- TryAgain ................. 75  queue or quota full; daemon stopping or lost
     +- ProtocolError ............ 76  incompatible client and daemon versions
     +- NotPermitted ............. 77
     +- ConfigError .............. 78  config, runtime path or state folder unusable
     +- WaitTimeout ............. 124
     +- Cancelled ............... 130  interrupted or cancelled

A message is one line: what happened, the value, the limit, what to do.
"""

from __future__ import annotations

import errno
import os
import traceback
from typing import Any

import msgspec

MAX_MESSAGE = 10_000
"""Characters of a message sent to another process; the longest path has 4,096."""

# EFBIG: Python ignores SIGXFSZ, so a file beyond RLIMIT_FSIZE is an error instead of a signal.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Of a write for which there is no room: by the disk, a quota, a limit of files' sizes."""


class HetschedError(Exception):
    """Base of all errors that hetsched raises deliberately.

    `frames`: where in its own code a plug-in raised it, as a traceback's lines; "": not there.
    """

    code = 70
    frames: str = ""


class JobFailed(HetschedError):
    """`result`: what an iterative job without convergence has reached; else None."""

    code = 1
    result: Any = None


class UsageError(HetschedError):
    code = 2


class DataError(HetschedError):
    code = 65


class InputMissing(HetschedError):
    code = 66


class Unavailable(HetschedError):
    code = 69


class InternalError(HetschedError):
    code = 70


class CantCreate(HetschedError):
    code = 73


class IOFailure(HetschedError):
    code = 74


class TryAgain(HetschedError):
    code = 75


class ProtocolError(HetschedError):
    code = 76


class NotPermitted(HetschedError):
    code = 77


class ConfigError(HetschedError):
    code = 78


class WaitTimeout(HetschedError, TimeoutError):
    code = 124


class Cancelled(HetschedError):
    code = 130


class ErrorRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as sent between processes; exceptions are never pickled."""

    code: int
    message: str
    frames: str = ""


_BY_CODE: dict[int, type[HetschedError]] = {
    error.code: error for error in HetschedError.__subclasses__()
}


def to_record(error: BaseException) -> ErrorRecord:
    """Return the record to send for `error`.

    An exception not of this tree is a bug (70), except that there are no free descriptors (75).
    """
    if isinstance(error, HetschedError):
        return ErrorRecord(error.code, _bounded(text_of(error)), error.frames)
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        text = f"{error.strerror}: close files, or raise the limit (ulimit -n), and try again"
        return ErrorRecord(TryAgain.code, text)
    text = f"{type(error).__name__}: {text_of(error)}"
    return ErrorRecord(InternalError.code, _bounded(text))


def text_of(error: BaseException) -> str:
    """Return the text of an error of any class: that of a plug-in may fail to print itself."""
    try:
        return encodable(str(error))
    except BaseException as failure:  # SystemExit, too, mustn't end whoever reports the error
        return f"(its text can't be read: {type(failure).__name__})"


def encodable(text: str) -> str:
    """Return `text` with what UTF-8 can't encode as escapes, such as lone surrogates."""
    return str.encode(text, "utf-8", "backslashreplace").decode("utf-8")


def plain(error: HetschedError) -> HetschedError:
    """Return `error` of a plug-in as one of this tree, with its text as it is now.

    A class or an argument of the plug-in's own could raise or hang whenever the error is shown.
    Only a user cancels a job or stops waiting for it.
    """
    for kind in _BY_CODE.values():
        if isinstance(error, kind) and kind not in (Cancelled, WaitTimeout):
            return kind(text_of(error))
    return JobFailed(text_of(error))


def _bounded(message: str) -> str:
    """Shorten a message that repeats a very long text of the client, such as a parameter."""
    if len(message) <= MAX_MESSAGE:
        return message
    half = MAX_MESSAGE // 2
    return f"{message[:half]} ... {message[-half:]}"


def from_record(record: ErrorRecord) -> HetschedError:
    """Return the error that `record` describes, to be raised here."""
    error = _BY_CODE.get(record.code, InternalError)(record.message)
    if record.frames:
        error.frames = record.frames
        error.add_note(f"in the code of the workload:\n{record.frames}")
    return error


# ---- what the code of a plug-in raises, as an error of its job that says where

MAX_FRAMES = 12
"""Of a traceback of a plug-in's code: endless recursion has a thousand equal ones."""
PACKAGE = os.path.dirname(__file__) + os.sep


def plug_in_error(what: str, error: BaseException) -> HetschedError:
    """Return the error of a job whose plug-in raised `error`; `what` failed.

    One of our error tree says itself what is wrong. To be called where the plug-in may hang.
    """
    if isinstance(error, HetschedError):
        own = plain(error)
        if type(error) is JobFailed:
            own.frames = error.frames
        return own
    frames = _own_frames(error)
    said = " ".join(text_of(error).split())
    text = f"{what} failed: {type(error).__name__}: {said}".rstrip(": ")
    if frames:
        text += f" ({frames[-1].filename}, line {frames[-1].lineno}, in {frames[-1].name})"
    failure = JobFailed(encodable(text))
    failure.frames = encodable("".join(traceback.format_list(frames)).rstrip("\n"))
    return failure


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames outside this package, the innermost last.

    Without columns: for carets Python 3.11 would parse the line, which isn't safe beside another
    thread that parses.
    """
    frames = traceback.extract_tb(error.__traceback__, limit=-4 * MAX_FRAMES)
    own = [frame for frame in frames if not frame.filename.startswith(PACKAGE)][-MAX_FRAMES:]
    return [traceback.FrameSummary(each.filename, each.lineno, each.name) for each in own]
