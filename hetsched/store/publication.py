"""Gives finished output files their names exactly once, also if the process ends in between.

A result passes three steps: `OutputFile.prepare` (complete, on disk, under a hidden name), the
caller records the `PreparedOutput` in its journal, and `publish_prepared` names the file. After a
crash `publish_prepared` is called again: it does what remains to be done, at whatever system call
the process ended. Without a record the job starts over or goes on (`finished_parts.py`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from hetsched.errors import CantCreate, HetschedError, IOFailure, TryAgain

UNSUPPORTED_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class PreparedOutput(msgspec.Struct, frozen=True):
    """A complete file on disk that has a hidden name. Paths are bytes, absolute, links resolved.

    `inode`, `size` and `mtime_ns` identify it under its final name. (Device numbers may change
    when the machine starts.)
    """

    temporary: bytes
    target: bytes
    force: bool
    inode: int
    size: int
    mtime_ns: int


def publish_prepared(output: PreparedOutput) -> bool:
    """Name a prepared file, and wait until its name is on disk. May be repeated.

    Returns whether the target is this file now. If not, the hidden name was gone: the file was
    published before and has been removed since (or, with `force`, replaced). After CantCreate
    (another process has created the target, or the folder is unusable) the hidden file is gone,
    and the next call raises the same; after IOFailure it is kept: call again.
    """
    target = os.fsdecode(output.target)
    with creation_errors(target), open_folder(target) as folder:
        if os.path.lexists(output.temporary):
            try:
                _name(output)
            except OSError:
                unlink(output.temporary)
                raise
        elif _is_taken(output):
            raise FileExistsError(errno.EEXIST, "exists")
        fsync(target, folder)
        if not output.force and _is_same(output.target, output):
            unlink(output.temporary)
        unlink(parts_path(os.fsdecode(output.temporary)))
    return _is_same(output.target, output)


def publish_each(outputs: Iterable[tuple[str, Callable[[], object]]]) -> None:
    """Name several outputs (path, function that names it), in order, until one fails.

    Several files can't get their names at once. So the error of a later one tells which ones have
    theirs already.
    """
    written: list[str] = []
    for path, publish in outputs:
        try:
            publish()
        except HetschedError as error:
            if not written:
                raise
            raise type(error)(f"{error}; already written: {', '.join(written)}") from error
        written.append(path)


def discard_prepared(output: PreparedOutput) -> None:
    unlink(output.temporary)
    unlink(parts_path(os.fsdecode(output.temporary)))


def parts_path(hidden: str) -> str:
    """Return the path of the record of what is complete in a hidden file."""
    return f"{hidden}s"


def name_file(hidden: str, target: str, replace: bool) -> None:
    """Give a hidden file its name. Raises OSError: FileExistsError unless it may `replace`.

    A link fails if the name exists; a rename would replace it.
    """
    if replace:
        Path(hidden).replace(target)
        return
    try:
        os.link(hidden, target)
    except OSError as error:
        if error.errno not in UNSUPPORTED_LINK:
            raise
        # Without hard links nothing excludes that another process creates the target just now.
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "exists") from None
        Path(hidden).rename(target)


def _name(output: PreparedOutput) -> None:
    try:
        name_file(os.fsdecode(output.temporary), os.fsdecode(output.target), output.force)
    except FileExistsError:
        if not _is_same(output.target, output):
            raise


def _is_taken(output: PreparedOutput) -> bool:
    try:
        mode = os.lstat(output.target).st_mode
    except OSError:
        return False
    return not _is_same(output.target, output) and not (output.force and stat.S_ISREG(mode))


def _is_same(path: bytes, output: PreparedOutput) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    identity = (status.st_ino, status.st_size, status.st_mtime_ns)
    return identity == (output.inode, output.size, output.mtime_ns)


def unlink(path: bytes | str) -> bool:
    with contextlib.suppress(OSError):
        Path(os.fsdecode(path)).unlink()
        return True
    return False


def fsync(path: str, fd: int) -> None:
    """Wait until the file or folder is on disk. Raises IOFailure."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems can't sync a folder
            raise IOFailure(f"{path}: {error.strerror}") from None


@contextlib.contextmanager
def open_folder(path: str) -> Iterator[int]:
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def creation_errors(path: str) -> Iterator[None]:
    folder = Path(path).absolute().parent
    try:
        yield
    except FileExistsError:
        raise CantCreate(
            f"{path}: was created by another process meanwhile; use --force to replace it"
        ) from None
    except (FileNotFoundError, NotADirectoryError):
        if folder.is_dir():  # one of the kernel's, such as /proc
            raise CantCreate(f"{path}: can't be created in {folder}") from None
        raise CantCreate(f"{path}: there is no folder {folder}; create it first") from None
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise TryAgain(f"{path}: {error.strerror}; try again, or raise `ulimit -n`") from None
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CantCreate(f"{path}: can't be created in {folder} ({reason})") from None


def replace_file(path: str, raw: bytes) -> None:
    """Replace a small file, once the new one's data are on disk. Raises IOFailure."""
    temporary = f"{path}.new"
    unlink(temporary)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600)
        try:
            os.write(fd, raw)
            fsync(path, fd)
        finally:
            os.close(fd)
        Path(temporary).replace(path)
    except OSError as error:
        unlink(temporary)
        raise IOFailure(f"{path}: {error.strerror}") from None
