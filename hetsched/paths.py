"""Paths of the runtime folder (sockets), the state folder (models), the cache (wisdom), and the
user's files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from hetsched.errors import ConfigError, DataError, UsageError

MAX_SOCKET_PATH = 107
"""Bytes that the path of a unix socket may have (sun_path without its NUL)."""
ZARR, RAW = ".zarr", ".raw"
HDF5 = (".h5", ".hdf5")
TIFF = (".tif", ".tiff")
FORMATS = (".npy", ZARR, *HDF5, *TIFF, RAW)
FORMAT_NAMES = ".npy, .zarr, .h5:dataset, .tif or .raw"
_RAW_LAYOUT = re.compile(r"(.+?):([<>=|]?[a-zA-Z]\w*:\d+(?:x\d+)*(?::\d+)?)", re.ASCII | re.DOTALL)
"""FILE:DTYPE:SHAPE[:OFFSET], the offset in bytes."""


def is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


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


class ArrayPath(NamedTuple):
    """Where an array is: `file`, its `suffix` in lower case, and a `part` of it.

    The part is a dataset of an HDF5 file, or DTYPE:SHAPE[:OFFSET] of a raw one.
    """

    file: str
    suffix: str
    part: str = ""


def split_path(path: str | os.PathLike[str]) -> ArrayPath:
    text = os.fspath(path)
    if (found := _RAW_LAYOUT.fullmatch(text)) and not found[1].endswith(HDF5):
        return ArrayPath(found[1], RAW, found[2])
    for suffix in HDF5:
        head, colon, dataset = text.rpartition(f"{suffix}:")
        if colon:
            return ArrayPath(head + suffix, suffix, dataset.strip("/"))
    return ArrayPath(text, Path(text).suffix.lower())


def new_file(path: str | os.PathLike[str]) -> str:
    """As `real_path`, of a file to be written. Raises UsageError for a name of another format."""
    resolved = real_path(path)
    if (suffix := split_path(resolved).suffix) and suffix not in FORMATS:
        raise UsageError(f"{os.fspath(path)!r}: the name must end with {FORMAT_NAMES}")
    return resolved


def private_folder(path: Path, label: str) -> Path:
    """Create `path` (0700) if necessary. Raises ConfigError if that can't be, or if another user
    could change what is in it.
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
