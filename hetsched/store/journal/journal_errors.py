"""SQLite's errors as ours: which code, and what to do about it."""

from __future__ import annotations

import errno
from pathlib import Path

import apsw

from hetsched.errors import CantCreate, ConfigError, HetschedError, InternalError, IOFailure

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_WRITABLE = (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError)
DISK_ERRORS = (apsw.FullError, apsw.IOError, apsw.CorruptError, apsw.NotADBError, *_NOT_WRITABLE)
"""Errors of the file or the disk rather than of a statement."""


def write_error(path: Path, error: Exception, system_errno: int = 0) -> HetschedError:
    """Return the error to report for a failed write; `system_errno`: of the failed call, or 0."""
    if isinstance(error, HetschedError):
        return error
    if isinstance(error, apsw.FullError) or (
        isinstance(error, apsw.IOError) and system_errno in NO_ROOM
    ):
        return CantCreate(f"{path}: no room to record the job; make room, then submit it again")
    if isinstance(error, _NOT_WRITABLE):
        return CantCreate(f"{path}: can't be written ({error}); make it writable again")
    if isinstance(error, apsw.BusyError):
        return IOFailure(f"{path}: in use by another process")
    if isinstance(error, DISK_ERRORS):
        return IOFailure(f"{path}: the job can't be recorded ({error}); check the disk")
    return InternalError(f"{path}: {type(error).__name__}: {error}")


def open_error(path: Path, error: Exception) -> ConfigError:
    """Return the error that stops a daemon which can't use its journal. It is never wiped."""
    if isinstance(error, ConfigError):
        return error
    if isinstance(error, apsw.BusyError):
        return ConfigError(
            f"{path}: in use by another daemon; stop it, or set HETSCHED_STATE_DIR to another"
            " folder"
        )
    if isinstance(error, apsw.NotADBError | apsw.CorruptError | apsw.SchemaChangeError):
        return ConfigError(
            f"{path}: damaged, or not a journal ({error}); its queued jobs can't be read. Restore"
            f" it from a backup, or start with an empty queue: mv {path} {path}.damaged"
        )
    if isinstance(error, apsw.FullError):
        return ConfigError(f"{path}: no room to open it; make room on its disk")
    return ConfigError(f"{path}: can't be opened ({error}); check the disk")
