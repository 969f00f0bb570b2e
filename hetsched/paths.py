"""Paths of the runtime folder (sockets), the state folder (models), the cache (wisdom), and the
user's files."""

from __future__ import annotations

import os
from pathlib import Path

from hetsched.errors import ConfigError, DataError, UsageError

MAX_SOCKET_PATH = 107
"""Bytes that the path of a unix socket may have (sun_path without its NUL)."""


def runtime_dir() -> Path:
    """Return HETSCHED_RUNTIME_DIR, ``$XDG_RUNTIME_DIR/hetsched`` or the state folder's ``run``."""
    override = os.environ.get("HETSCHED_RUNTIME_DIR")
    if override:
        return Path(override).absolute()
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "hetsched" if base else state_dir() / "run"


def state_dir() -> Path:
    override = os.environ.get("HETSCHED_STATE_DIR")
    if override:
        return Path(override).absolute()
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "hetsched"


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "hetsched"


def endpoint_path() -> Path:
    """Return the path of the daemon's ZeroMQ socket."""
    return runtime_dir() / "control.sock"


def session_path() -> Path:
    """Return the path of the daemon's session socket."""
    return runtime_dir() / "session.sock"


def models_path() -> Path:
    return state_dir() / "models.db"


def journal_path() -> Path:
    return state_dir() / "journal.db"


def real_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a user's file, links resolved, as it is sent to the daemon.

    A link such as /dev/stdin or /proc/self/fd/3 is another file in each process. Raises
    DataError for a name that can't be sent, UsageError for one that no file can have.
    """
    try:
        resolved = os.path.realpath(os.fspath(path))
        resolved.encode()
    except UnicodeEncodeError:
        raise DataError(f"{os.fspath(path)!r}: the name isn't UTF-8; rename the file") from None
    except ValueError as error:
        raise UsageError(f"{os.fspath(path)!r}: {error}") from None
    return resolved


def private_folder(path: Path, label: str) -> Path:
    """Create `path` (0700) if necessary.

    Raises
    ------
    ConfigError
        It can't be created or written, or another user could change what is in it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"{label} {path}: {error.strerror}") from None
    if status.st_uid != os.geteuid():
        raise ConfigError(
            f"{label} {path}: belongs to uid {status.st_uid}, not to this user; choose another"
        )
    if status.st_mode & 0o022:
        raise ConfigError(
            f"{label} {path}: other users may write to it (mode {status.st_mode & 0o7777:04o});"
            f" chmod go-w {path}"
        )
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"{label} {path}: not writable")
    return path
