"""Files without a name, and the system calls that allocate their space and name them.

A new file has no name (O_TMPFILE), so that nothing is left behind however a process ends; on file
systems without O_TMPFILE it is a hidden file beside the target.

Python ignores SIGXFSZ, so exceeding RLIMIT_FSIZE raises EFBIG here instead of a signal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from hetsched.errors import CantCreate, IOFailure, TryAgain
from hetsched.units import format_bytes

UNSUPPORTED_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS)
UNSUPPORTED_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


def open_unnamed(target: str, hidden: str) -> tuple[int, str | None]:
    """Open a new file in the target's folder; return it and its name: `hidden`, or None."""
    folder = os.path.dirname(target)
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(folder, flags | os.O_TMPFILE, 0o600), None
    except OSError as error:
        if error.errno not in UNSUPPORTED_TMPFILE:
            raise
    return os.open(hidden, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), hidden


def new_token() -> str:
    """Return a new token for a hidden name."""
    return secrets.token_hex(8)


def allocate(path: str, fd: int, nbytes: int) -> None:
    """Allocate `nbytes` for the file. Raises CantCreate if there is no room."""
    disk = os.fstatvfs(fd)
    free = disk.f_bfree * disk.f_frsize
    try:
        if nbytes > free:  # or it would fill the disk for every process before it failed
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
            os.ftruncate(fd, nbytes)  # this file system can't promise the space
            return
        raise CantCreate(
            f"{path}: no room for {format_bytes(nbytes)} ({error.strerror},"
            f" {format_bytes(free)} free); choose another folder"
        ) from None


def umask() -> int:
    """Return the umask, read, not set: os.umask() affects other threads that create files."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    for line in status.split("\n"):
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077


def fsync(path: str, fd: int) -> None:
    """Wait until the file or folder is on disk. Raises IOFailure."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems can't sync a folder
            raise IOFailure(f"{path}: {error.strerror}") from None


@contextlib.contextmanager
def open_folder(path: str) -> Iterator[int]:
    """Open the folder that `path` is in."""
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def creation_errors(path: str) -> Iterator[None]:
    """Translate the operating system's errors into CantCreate, with the reason."""
    folder = Path(path).absolute().parent
    try:
        yield
    except FileExistsError:
        raise CantCreate(
            f"{path}: was created by another process meanwhile; use --force to replace it"
        ) from None
    except (FileNotFoundError, NotADirectoryError):
        raise CantCreate(f"{path}: there is no folder {folder}; create it first") from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise TryAgain(f"{path}: {error.strerror}; try again, or raise `ulimit -n`") from None
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            reason = "too many links, or one like /proc/self/cwd; give the file's own path"
        raise CantCreate(f"{path}: can't be created in {folder} ({reason})") from None
