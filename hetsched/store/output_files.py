"""Writes output files, which appear complete or not at all.

An unfinished file is hidden beside its target; all its space is allocated at the start. Devices
`pwrite` its data to the descriptor, starting at `offset`. It is synced, then it gets its name.

Python ignores SIGXFSZ, so exceeding RLIMIT_FSIZE raises EFBIG here instead of a signal.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import math
import os
import secrets
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetsched.errors import CantCreate, DataError, IOFailure
from hetsched.store.finished_parts import Ranges, open_finished
from hetsched.store.input_files import file_kind, npy_prefix
from hetsched.store.publication import (
    PreparedOutput,
    creation_errors,
    fsync,
    name_file,
    open_folder,
    parts_path,
    unlink,
)
from hetsched.units import format_bytes

MAX_WRITE = 64 << 20
"""Bytes per write: the kernel accepts at most 2 GiB, and Ctrl-C waits until a write has ended."""


@dataclass(frozen=True)
class OutputClaim:
    """An output file that a waiting job will create; `path` is absolute, links resolved."""

    path: str
    nbytes: int
    shape: tuple[int, ...]
    dtype: str


@dataclass
class OutputFile:
    """An unfinished file: its space is allocated, and its data must be written to `fd`.

    End it with `publish`, `prepare` or `discard`. All close `fd`; `publish` and `discard` may be
    called again without effect. `path` is the target, absolute, links resolved; `mode` that of the
    file that is replaced, or None; `finished` the units that an earlier daemon has completed in
    it.
    """

    fd: int
    offset: int
    path: str
    hidden: str
    force: bool
    mode: int | None
    finished: Ranges = ()

    def publish(self, sync: bool = True) -> None:
        """Give the complete file its name, atomically.

        `sync`: first wait until it is on disk, so that it survives a power cut. A file that
        replaces another is always synced: else a power cut could take both.
        """
        if self.fd < 0:
            return
        try:
            self._complete(sync or self.force)
            with creation_errors(self.path), open_folder(self.path) as folder:
                name_file(self.hidden, self.path, self.force)
                if sync:
                    fsync(self.path, folder)
        finally:
            self.discard()

    def prepare(self) -> PreparedOutput:
        """Write the complete file to disk under its hidden name, and close it.

        The caller now owns the file: `publish_prepared` or `discard_prepared` ends it.
        """
        try:
            self._complete(sync=True)
            with creation_errors(self.path), open_folder(self.path) as folder:
                fsync(self.path, folder)
            status = os.fstat(self.fd)
        except BaseException:
            self.discard()
            raise
        os.close(self.fd)
        self.fd = -1
        names = (os.fsencode(self.hidden), os.fsencode(self.path))
        return PreparedOutput(
            *names, self.force, status.st_ino, status.st_size, status.st_mtime_ns
        )

    def discard(self) -> None:
        """Remove the hidden name, and with it the file unless it was published."""
        if self.fd >= 0:
            unlink(self.hidden)
            unlink(parts_path(self.hidden))
            os.close(self.fd)
        self.fd = -1

    def leave(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def _complete(self, sync: bool) -> None:
        with creation_errors(self.path):
            if self.mode is not None:
                os.fchmod(self.fd, self.mode)
        if sync:
            fsync(self.path, self.fd)


def create_output(
    path: str,
    shape: tuple[int, ...],
    dtype: str,
    force: bool = False,
    inputs: Collection[tuple[int, int]] = (),
    token: str = "",
    identity: str = "",
) -> OutputFile:
    """Create an unfinished ``.npy`` file with its header written and all its space allocated.

    `inputs` (st_dev, st_ino) must not be the output. `token` determines the hidden name: a file of
    that name is a leftover, and replaced. But one with the same `identity` (of the job and its
    inputs), in which units are known to be complete, is opened again (`finished_parts.py`).
    """
    prefix = npy_prefix(shape, dtype)
    nbytes = len(prefix) + math.prod(shape) * np.dtype(dtype).itemsize
    if token and identity:
        target, mode = checked_target(path, force, inputs)
        hidden = hidden_path(target, token)
        found = open_finished(hidden, identity, nbytes, prefix)
        if found is not None:
            return OutputFile(found[0], len(prefix), target, hidden, force, mode, found[1])
    output = create_file(path, nbytes, force, inputs, token)
    output.offset = len(prefix)
    write_at(output, prefix, 0)
    return output


def create_file(
    path: str,
    nbytes: int,
    force: bool = False,
    inputs: Collection[tuple[int, int]] = (),
    token: str = "",
) -> OutputFile:
    """Create an unfinished file of `nbytes`. Parameters and errors as in `create_output`."""
    target, mode = checked_target(path, force, inputs)
    with creation_errors(path):
        if token:
            hidden = hidden_path(target, token)
            unlink(hidden)
            unlink(parts_path(hidden))
            fd = _open_new(hidden)
        else:
            fd, hidden = _open_hidden(target)
    output = OutputFile(fd, 0, target, hidden, force, mode)
    try:
        allocate(path, fd, nbytes)
    except BaseException:
        output.discard()
        raise
    return output


def check_output(
    path: str,
    shape: tuple[int, ...],
    dtype: str,
    *,
    force: bool = False,
    inputs: Collection[tuple[int, int]] = (),
) -> OutputClaim:
    """Check what `create_output` would, but for the space, and return what the file will need."""
    target, _ = checked_target(path, force, inputs)
    nbytes = len(npy_prefix(shape, dtype)) + math.prod(shape) * np.dtype(dtype).itemsize
    with creation_errors(path), open_folder(target):
        if not os.access(os.path.dirname(target), os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    return OutputClaim(target, nbytes, tuple(shape), dtype)


def save_array(path: str, array: np.ndarray, force: bool = False) -> None:
    values = np.ascontiguousarray(array)
    output = create_output(path, array.shape, values.dtype.str, force)
    write_at(output, values.reshape(-1).view(np.uint8).data, output.offset)
    output.publish()


def write_whole(path: str, raw: bytes, force: bool = False) -> None:
    output = create_file(path, len(raw), force)
    write_at(output, raw, 0)
    output.publish()


def write_at(output: OutputFile, data: bytes | memoryview, offset: int) -> None:
    """Write `data` to the file; discard it if that fails. Raises IOFailure."""
    try:
        written = 0
        while written < len(data):
            block = data[written : written + MAX_WRITE]
            written += os.pwrite(output.fd, block, offset + written)
    except OSError as error:
        output.discard()
        raise IOFailure(f"{output.path}: {error.strerror}") from None
    except BaseException:
        output.discard()
        raise


def checked_target(
    path: str, force: bool, inputs: Collection[tuple[int, int]] = ()
) -> tuple[str, int | None]:
    """Return the file that a new one at `path` becomes or replaces, links resolved, and its mode.

    The mode is None if there is no file yet. Raises CantCreate, DataError.
    """
    with creation_errors(path):
        target = os.path.realpath(path)
        try:
            existing = Path(target).stat()
        except FileNotFoundError:
            return target, None
    if (existing.st_dev, existing.st_ino) in inputs:
        raise DataError(f"{path}: is also the input; give the output another name")
    if not stat.S_ISREG(existing.st_mode):
        raise CantCreate(f"{path}: is {file_kind(existing.st_mode)}; give the name of a file")
    if not force:
        raise CantCreate(f"{path}: exists; give another name, or replace it with --force")
    return target, stat.S_IMODE(existing.st_mode) & 0o777


def hidden_path(target: str, token: str) -> str:
    """Return the hidden name of the unfinished file for `target` that `token` determines.

    A token is unique to a journal, a job and an output, so that after a crash the file can be
    found, and belongs to nobody else.
    """
    return os.path.join(os.path.dirname(target), f".hetsched-{token}.part")


def remove_unfinished(path: str, token: str) -> bool:
    """Remove what a job with this token has left for `path`; return whether there was something.

    A job that has several outputs adds their names to its token.
    """
    with contextlib.suppress(OSError):
        return sum(unlink(str(entry)) for entry in _unfinished(path, token)) > 0
    return False


def finished_at(path: str, token: str) -> float:
    """Return when finished parts of a job with this token were last noted; 0: never.

    Seconds since the epoch, by the file system. Raises OSError.
    """
    notes = [entry for entry in _unfinished(path, token) if entry.suffix == ".parts"]
    return max((entry.stat().st_mtime for entry in notes), default=0.0)


def _unfinished(path: str, token: str) -> list[Path]:
    folder = Path(os.path.realpath(path)).parent
    ours = (f".hetsched-{token}-", f".hetsched-{token}.")
    return [entry for entry in folder.iterdir() if entry.name.startswith(ours)]


def _open_new(hidden: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(hidden, flags, 0o666)


def _open_hidden(target: str) -> tuple[int, str]:
    """Open a new hidden file; replace one that a killed process has left for this target.

    The lock tells the two apart: that of a process that was killed is free.
    """
    digest = hashlib.blake2b(os.fsencode(Path(target).name), digest_size=8).hexdigest()
    usual = hidden_path(target, digest)
    with contextlib.suppress(OSError):
        leftover = os.open(usual, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(leftover, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(leftover), Path(usual).lstat()):
                unlink(usual)
        finally:
            os.close(leftover)
    for hidden in (usual, hidden_path(target, f"{digest}-{secrets.token_hex(4)}")):
        try:
            fd = _open_new(hidden)
        except FileExistsError:  # another process writes the same target now
            continue
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(fd), Path(hidden).lstat()):
                return fd, hidden
        os.close(fd)  # another process took it for a leftover before it was locked
    raise FileExistsError(errno.EEXIST, "exists")


def allocate(path: str, fd: int, nbytes: int) -> None:
    """Allocate `nbytes` for the file. Raises CantCreate if there is no room."""
    if not nbytes:
        return
    check_room(path, fd, nbytes)  # or it would fill the disk for every process before it failed
    try:
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise _no_room(path, fd, nbytes, error.errno or 0) from None
        with creation_errors(path):
            os.ftruncate(fd, nbytes)  # this file system can't promise the space


def check_room(path: str, fd: int, nbytes: int) -> None:
    if nbytes > _free_bytes(fd):
        raise _no_room(path, fd, nbytes, errno.ENOSPC)


def _no_room(path: str, fd: int, nbytes: int, code: int) -> CantCreate:
    return CantCreate(
        f"{path}: no room for {format_bytes(nbytes)} ({os.strerror(code)},"
        f" {format_bytes(_free_bytes(fd))} free); choose another folder"
    )


def _free_bytes(fd: int) -> int:
    disk = os.fstatvfs(fd)
    return disk.f_bfree * disk.f_frsize
