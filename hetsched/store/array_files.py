"""Arrays in ``.npy`` files: headers read without trust, outputs that exist whole or not at all.

Owns: which files may be inputs, and where an unfinished output lives. Does not own headers
(npy.py) or data: devices `pread` and `pwrite` through the descriptors made here, from `offset` on.

An output has no name until it is published (O_TMPFILE), so that nothing is left behind however a
process ends; file systems that can't do this get a hidden file beside the target.

Python ignores SIGXFSZ from its start, so a file over RLIMIT_FSIZE is an EFBIG here and no signal.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hetsched.errors import CantCreate, DataError, InputMissing, IOFailure, TryAgain
from hetsched.store.npy_format import NpyHeader, npy_prefix, read_header
from hetsched.units import format_bytes

__all__ = ["NpyHeader", "Output", "create_output", "open_npy", "read_whole", "write_whole"]


def open_npy(path: str) -> tuple[int, NpyHeader]:
    """Open `path` for reading and say what it holds; the caller closes the descriptor.

    The file must be exactly as long as its header says: bytes that follow are mostly a second
    array in one file, which nobody would miss until the results are wrong.

    Raises
    ------
    InputMissing
        Not there, or not readable.
    DataError
        Not a regular file, or not a ``.npy`` file of numbers.
    """
    fd = _open_regular(path)
    try:
        return fd, read_header(path, fd)
    except BaseException:
        os.close(fd)
        raise


def _open_regular(path: str, wanted: str = "a .npy file", pipe: bool = False) -> int:
    """O_NONBLOCK: a FIFO that nobody writes to would block the open itself.

    `pipe`: a FIFO will do too; it ends at once if nobody writes to it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise _cant_open(path, error, wanted) from None
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode) and not (pipe and stat.S_ISFIFO(mode)):
        os.close(fd)
        raise DataError(f"{path}: is {_file_kind(mode)}, not {wanted}")
    if pipe:
        os.set_blocking(fd, True)
    return fd


def _cant_open(path: str, error: OSError | ValueError, wanted: str) -> Exception:
    code = error.errno if isinstance(error, OSError) else errno.ENOENT
    if code in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return TryAgain(f"{path}: {os.strerror(code)}; try again, or raise `ulimit -n`")
    if code == errno.ENXIO:
        return DataError(f"{path}: is a socket or a device, not {wanted}")
    if code == errno.ENOENT and Path(path).is_symlink():
        return InputMissing(f"{path}: is a link to {Path(path).readlink()}, which isn't there")
    if code == errno.ENOENT:
        return InputMissing(f"{path}: no such file")
    if code in (errno.EACCES, errno.EPERM):
        return InputMissing(f"{path}: not readable by this user (permission denied)")
    return InputMissing(f"{path}: {error.strerror if isinstance(error, OSError) else error}")


def _file_kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if test(mode):
            return name
    return "a device"


@dataclass
class Output:
    """A ``.npy`` file in the making: header written, space allocated, data to be written by `fd`.

    End it with `publish` or `discard`; both close `fd` and may be called again to no effect.
    """

    fd: int
    offset: int
    path: str
    """The target, absolute, links resolved."""
    temporary: str | None
    """The hidden file, or None where the file has no name yet."""
    force: bool
    mode: int

    def publish(self, sync: bool = True) -> None:
        """Give the file its name, whole or not at all.

        `sync`: wait until the disk has it, so that it also outlives a power cut.

        Raises
        ------
        CantCreate
            The target has come to exist meanwhile, or its folder has gone.
        IOFailure
            The disk refused the data.
        """
        if self.fd < 0:
            return
        try:
            os.fchmod(self.fd, self.mode)
            if sync:
                _fsync(self.path, self.fd)
            self._name(sync)
        finally:
            self.discard()

    def discard(self) -> None:
        """Leave nothing behind."""
        if self.temporary is not None:
            with contextlib.suppress(OSError):
                Path(self.temporary).unlink()
        self.temporary = None
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def _name(self, sync: bool) -> None:
        with _creating(self.path), _folder(self.path) as folder:
            if self.force:
                hidden = self.temporary or _hidden_name(self.path)
                if self.temporary is None:
                    self._link(hidden, folder)
                    self.temporary = hidden
                Path(hidden).replace(self.path)
                self.temporary = None
            else:
                self._link(self.path, folder)
            if sync:
                _fsync(self.path, folder)

    def _link(self, to: str, folder: int) -> None:
        """A link fails where its target exists; a rename would replace it.

        With a `dst_dir_fd` Python calls linkat, which alone can follow /proc/self/fd.
        """
        source = self.temporary or f"/proc/self/fd/{self.fd}"
        try:
            os.link(source, Path(to).name, dst_dir_fd=folder, follow_symlinks=True)
        except OSError as error:
            unable = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # no hard links on this one
            if self.temporary is None or error.errno not in unable:
                raise
            Path(self.temporary).rename(to)
            self.temporary = None


def create_output(
    path: str,
    shape: tuple[int, ...],
    dtype: str,
    force: bool = False,
    inputs: Collection[tuple[int, int]] = (),
) -> Output:
    """Make room for an array at `path`: every byte is allocated before any is computed.

    Parameters
    ----------
    path : str
    shape : tuple of int
    dtype : str
        What `numpy.dtype` takes.
    force : bool
        Replace a file that exists.
    inputs : collection of (st_dev, st_ino)
        Files that the output must not be.

    Raises
    ------
    CantCreate
        It exists, its folder is missing or read-only, or there is no room.
    DataError
        It is one of `inputs`.
    """
    target = os.path.realpath(path)
    mode = _target_mode(path, target, force, inputs)
    with _creating(path):
        fd, temporary = _unnamed(target)
    prefix = npy_prefix(shape, dtype)
    output = Output(fd, len(prefix), target, temporary, force, mode)
    nbytes = len(prefix) + math.prod(shape) * np.dtype(dtype).itemsize
    try:
        _allocate(path, fd, nbytes)
        with _creating(path):
            os.pwrite(fd, prefix, 0)
    except BaseException:
        output.discard()
        raise
    return output


def write_whole(path: str, raw: bytes, force: bool = False) -> None:
    """Make `path` a file with just these bytes, whole or not at all.

    Raises
    ------
    CantCreate
        It exists, its folder is missing or read-only, or there is no room.
    IOFailure
    """
    target = os.path.realpath(path)
    mode = _target_mode(path, target, force, ())
    with _creating(path):
        fd, temporary = _unnamed(target)
    output = Output(fd, 0, target, temporary, force, mode)
    try:
        if raw:
            _allocate(path, fd, len(raw))
        with _creating(path):
            done = 0
            while done < len(raw):
                done += os.pwrite(fd, raw[done:], done)
        output.publish()
    finally:
        output.discard()


def read_whole(path: str, most: int) -> bytes:
    """What is in the file or pipe `path`, at most so many bytes.

    Raises
    ------
    InputMissing
        Not there, or not readable.
    DataError
        Neither a regular file nor a pipe, or larger.
    IOFailure
    """
    fd = _open_regular(path, "a file to read", pipe=True)
    with open(fd, "rb") as file:
        try:
            raw = file.read(most + 1)
        except OSError as error:
            raise IOFailure(f"{path}: {error.strerror}") from None
    if len(raw) > most:
        raise DataError(f"{path}: has more than {format_bytes(most)}, which is all that is read")
    return raw


def _target_mode(path: str, target: str, force: bool, inputs: Collection[tuple[int, int]]) -> int:
    """Permission bits of the new file: the old one's, else what the umask leaves."""
    with _creating(path):
        try:
            there = Path(target).stat()
        except FileNotFoundError:
            return 0o666 & ~_umask()
    if (there.st_dev, there.st_ino) in inputs:
        raise DataError(f"{path}: is the input too; give the output a file of its own")
    if not stat.S_ISREG(there.st_mode):
        raise CantCreate(f"{path}: is {_file_kind(there.st_mode)}; give the name of a file")
    if not force:
        raise CantCreate(f"{path}: exists; give another name, or replace it with --force")
    return stat.S_IMODE(there.st_mode) & 0o777


def _unnamed(target: str) -> tuple[int, str | None]:
    """A new file in the target's folder: without a name where the file system can do that."""
    folder = os.path.dirname(target)
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(folder, flags | os.O_TMPFILE, 0o600), None
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS):
            raise
    hidden = _hidden_name(target)
    return os.open(hidden, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), hidden


def _hidden_name(target: str) -> str:
    return os.path.join(os.path.dirname(target), f".hetsched-{secrets.token_hex(8)}.part")


def _allocate(path: str, fd: int, nbytes: int) -> None:
    disk = os.fstatvfs(fd)
    free = disk.f_bfree * disk.f_frsize
    try:
        if nbytes > free:  # or it would fill the disk for everybody, only to fail
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
            os.ftruncate(fd, nbytes)  # its file system can't promise the space
            return
        raise CantCreate(
            f"{path}: no room for {format_bytes(nbytes)} ({error.strerror},"
            f" {format_bytes(free)} free); choose another folder"
        ) from None


def _umask() -> int:
    """Read, not set: os.umask() is the whole process's, and other threads create files too."""
    for line in (
        Path("/proc/self/status").read_text(encoding="ascii", errors="replace").split("\n")
    ):
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077


def _fsync(path: str, fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems can't sync a folder
            raise IOFailure(f"{path}: {error.strerror}") from None


@contextlib.contextmanager
def _folder(path: str) -> Iterator[int]:
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _creating(path: str) -> Iterator[None]:
    """The operating system's refusals as CantCreate, with what stands in the way."""
    folder = Path(path).absolute().parent
    try:
        yield
    except FileExistsError:
        raise CantCreate(f"{path}: has come to exist meanwhile; use --force to replace") from None
    except (FileNotFoundError, NotADirectoryError):
        raise CantCreate(f"{path}: there is no folder {folder}; make it first") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CantCreate(f"{path}: can't be created in {folder} ({reason})") from None
