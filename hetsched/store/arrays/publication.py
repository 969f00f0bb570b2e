"""Gives finished output files their names exactly once, also if the process ends in between.

A result passes three steps: `OutputFile.prepare` (complete, on disk, under a hidden name), the
caller records the `PreparedOutput` in its journal, and `publish_prepared` names the file. After a
crash `publish_prepared` is called again: it does what remains to be done, at whatever system call
the process ended. Without a record the job starts over, and `remove_leftover` removes its file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from hetsched.errors import HetschedError
from hetsched.store.arrays.unnamed_file import (
    UNSUPPORTED_LINK,
    creation_errors,
    fsync,
    open_folder,
)


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

    Returns
    -------
    bool
        Whether the target is this file now. False: the hidden name was gone, so the file was
        published before and has been removed since (or, with `force`, replaced).

    Raises
    ------
    CantCreate
        Another process has created the target (without `force`), or the folder is unusable. The
        hidden file is removed, and the next call raises the same.
    IOFailure
        The folder can't be written to disk. The hidden file is kept: call it again.
    """
    target = os.fsdecode(output.target)
    with creation_errors(target), open_folder(target) as folder:
        if os.path.lexists(output.temporary):
            try:
                _name(output)
            except OSError:
                _unlink(output.temporary)
                raise
        elif _is_taken(output):
            raise FileExistsError(errno.EEXIST, "exists")
        fsync(target, folder)
        if not output.force and _is_same(output.target, output):
            _unlink(output.temporary)
    return _is_same(output.target, output)


def publish_each(outputs: Iterable[tuple[str, Callable[[], object]]]) -> None:
    """Name several outputs (path, function that names it), in order, until one fails.

    Several files can't get their names at once. So the error of a later one tells which ones have
    theirs already.

    Raises
    ------
    HetschedError
        As raised by a function.
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
    """Remove the hidden file of an output, unless it has been published."""
    _unlink(output.temporary)


def hidden_path(target: str, token: str) -> str:
    """Return the hidden name of the unfinished file for `target` that `token` determines.

    A token is unique to a journal, a job and an output, so that after a crash the file can be
    found, and belongs to nobody else.
    """
    return os.path.join(os.path.dirname(target), f".hetsched-{token}.part")


def remove_leftover(path: str, token: str) -> bool:
    """Remove the unfinished file of a job that will start over; return whether there was one."""
    return _unlink(os.fsencode(hidden_path(os.path.realpath(path), token)))


def _name(output: PreparedOutput) -> None:
    if output.force:
        _path(output.temporary).replace(_path(output.target))
        return
    try:
        os.link(output.temporary, output.target)
    except FileExistsError:
        if not _is_same(output.target, output):
            raise
    except OSError as error:
        if error.errno not in UNSUPPORTED_LINK:
            raise
        # Without hard links nothing excludes that another process creates the target just now.
        if os.path.lexists(output.target):
            raise FileExistsError(error.errno, "exists") from None
        _path(output.temporary).rename(_path(output.target))


def _is_taken(output: PreparedOutput) -> bool:
    """Whether the target is something that this output wouldn't have replaced."""
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


def _path(name: bytes) -> Path:
    return Path(os.fsdecode(name))


def _unlink(path: bytes) -> bool:
    with contextlib.suppress(OSError):
        _path(path).unlink()
        return True
    return False
