"""Opens input files: arrays in ``.npy`` files, and small files read as a whole.

Devices `pread` the data from the descriptors opened here, starting at the header's `offset`.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from hetsched.errors import DataError, InputMissing, IOFailure, TryAgain
from hetsched.store.arrays.npy_format import NpyHeader, read_header
from hetsched.units import format_bytes


def open_npy(path: str) -> tuple[int, NpyHeader]:
    """Open `path` for reading and read its header; the caller closes the descriptor.

    The file must be exactly as long as its header says: further bytes are usually a second array
    in the same file, which would otherwise be ignored silently.
    """
    fd = open_regular(path)
    try:
        return fd, read_header(path, fd)
    except BaseException:
        os.close(fd)
        raise


def read_whole(path: str, max_bytes: int) -> bytes:
    """Read the file or pipe `path`."""
    fd = open_regular(path, "a file to read", allow_pipe=True)
    with open(fd, "rb") as file:
        try:
            raw = file.read(max_bytes + 1)
        except OSError as error:
            raise IOFailure(f"{path}: {error.strerror}") from None
    if len(raw) > max_bytes:
        raise DataError(f"{path}: larger than the limit of {format_bytes(max_bytes)}")
    return raw


def file_kind(mode: int) -> str:
    """Name the kind of a file that isn't a regular one, with its article."""
    for is_kind, name in (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if is_kind(mode):
            return name
    return "a device"


def open_regular(path: str, expected: str = "a .npy file", allow_pipe: bool = False) -> int:
    """Open a regular file; nothing else is opened for reading, which could block.

    `allow_pipe`: a FIFO is accepted too; it ends at once if it has no writer. Only commands, not
    the daemon, read these.
    """
    try:
        # O_PATH first: to open a device or a FIFO can block, or act on the device.
        path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _cant_open(path, error) from None
    try:
        mode = os.fstat(path_fd).st_mode
        if not stat.S_ISREG(mode) and not (allow_pipe and stat.S_ISFIFO(mode)):
            raise DataError(f"{path}: is {file_kind(mode)}, not {expected}")
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        fd = os.open(f"/proc/self/fd/{path_fd}", flags)
    except OSError as error:
        raise _cant_open(path, error) from None
    finally:
        os.close(path_fd)
    if allow_pipe:
        os.set_blocking(fd, True)
    return fd


def _cant_open(path: str, error: OSError | ValueError) -> Exception:
    code = error.errno if isinstance(error, OSError) else errno.ENOENT
    if code in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return TryAgain(f"{path}: {os.strerror(code)}; try again, or raise `ulimit -n`")
    if code == errno.ENOENT and Path(path).is_symlink():
        return InputMissing(f"{path}: is a link to {Path(path).readlink()}, which doesn't exist")
    if code == errno.ENOENT:
        return InputMissing(f"{path}: no such file")
    if code in (errno.EACCES, errno.EPERM):
        return InputMissing(f"{path}: not readable by this user (permission denied)")
    return InputMissing(f"{path}: {error.strerror if isinstance(error, OSError) else error}")
