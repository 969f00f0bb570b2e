"""Opens input files: arrays in ``.npy`` files, and small files read as a whole.

Devices `pread` the data from the descriptors opened here, starting at the layout's `offset`.
"""

from __future__ import annotations

import errno
import io
import math
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from numpy.lib import format as npy

from hetsched import errors
from hetsched.dtypes import NUMERIC
from hetsched.units import format_bytes

MAX_HEADER = 10_000
"""Bytes; NumPy's own limit. Real headers have 128."""
MAX_EXTENT = 2**63
ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""What `zipfile` and NumPy raise for a damaged archive."""


class ArrayLayout(msgspec.Struct, frozen=True):
    """The array in a file. `dtype` is NumPy's string, byte order included ("<c8"); `library`: the
    suffix and the part that only the library of the format can read ("": anybody).
    """

    shape: tuple[int, ...]
    dtype: str
    order: str = "C"
    offset: int = 0  # Of the data
    library: str = ""


def read_header(path: str, fd: int) -> ArrayLayout:
    """Read the header of the .npy file behind `fd`, which must be as long as its header says:
    further bytes are usually a second array, which would otherwise be ignored silently.
    """
    size = os.fstat(fd).st_size
    try:
        start = io.BytesIO(os.pread(fd, MAX_HEADER + 12, 0))
    except OSError as error:
        raise errors.IOFailure(f"{path}: {error.strerror}") from None
    if size == 0:
        raise errors.DataError(f"{path}: is empty, not a .npy file")
    if start.getvalue()[:1] == b"\x80":
        raise errors.DataError(
            f"{path}: is a pickle, which is never loaded; numpy.save() writes arrays"
        )
    shape, is_fortran, dtype = parse_header(path, start)
    offset = start.tell()
    nbytes = math.prod(shape) * dtype.itemsize  # Python's integers don't overflow
    extents = "x".join(map(str, shape)) or "()"
    if nbytes == 0:
        raise errors.DataError(f"{path}: holds no elements (shape {extents})")
    if offset + nbytes > size:
        raise errors.DataError(
            f"{path}: its header says {extents} {dtype.name} ({nbytes} bytes),"
            f" the file has {size - offset}: truncated, or the header is wrong"
        )
    if offset + nbytes < size:
        raise errors.DataError(
            f"{path}: has {size - offset - nbytes} bytes more than its header says"
            f" ({extents} {dtype.name}); several arrays in one file?"
        )
    return ArrayLayout(shape, dtype.str, "F" if is_fortran else "C", offset)


def parse_header(path: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return (shape, is in Fortran order, dtype); leaves `file` at the data. Raises DataError."""
    try:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version}; versions 1.0 to 3.0 can be read")
        # 3.0 differs in the encoding of names of fields, and records are refused.
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(file, max_header_size=MAX_HEADER)
    except Exception as error:  # NumPy's parser raises a dozen different ones
        reason = " ".join(str(error).split())
        raise errors.DataError(f"{path}: broken or truncated .npy header: {reason:.120}") from None
    if dtype.hasobject:
        raise errors.DataError(f"{path}: holds pickled Python objects, which are never loaded")
    if dtype.kind not in NUMERIC:
        kind = f"records {dtype.descr!r:.60}" if dtype.names else dtype.name
        raise errors.DataError(f"{path}: holds {kind}; only numbers are supported")
    if any(not 0 <= extent < MAX_EXTENT for extent in shape):
        raise errors.DataError(f"{path}: broken .npy header: impossible shape {shape!r:.60}")
    return shape, is_fortran, dtype


def npy_header(shape: tuple[int, ...], dtype: str) -> bytes:
    file, element = io.BytesIO(), np.dtype(dtype)
    extents = tuple(map(int, shape))
    header = {"descr": npy.dtype_to_descr(element), "fortran_order": False, "shape": extents}
    npy.write_array_header_1_0(file, header)
    return file.getvalue()


@contextmanager
def open_archive(path: str, kind: str, file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open an ``.npz`` file. Whatever the block finds to be broken is a DataError."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except ARCHIVE_ERRORS as error:
        reason = " ".join(str(error.args[0] if error.args else error).split())
        raise errors.DataError(f"{path}: not {kind}, or damaged: {reason:.200}") from None
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise errors.DataError(f"{path}: damaged: a position before the start") from None
        raise errors.IOFailure(f"{path}: {error.strerror}") from None


def read_whole(path: str, max_bytes: int) -> bytes:
    fd = open_regular(path, "a file to read", allow_pipe=True)
    with open(fd, "rb") as file:
        try:
            raw = file.read(max_bytes + 1)
        except OSError as error:
            raise errors.IOFailure(f"{path}: {error.strerror}") from None
    if len(raw) > max_bytes:
        raise errors.DataError(f"{path}: larger than the limit of {format_bytes(max_bytes)}")
    return raw


def file_kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def open_regular(path: str, expected: str, allow_pipe: bool = False) -> int:
    """Open a regular file; nothing else is opened for reading, which could block.

    `allow_pipe`: for commands, not the daemon; a FIFO ends at once if it has no writer.
    """
    try:
        # O_PATH first: to open a device or a FIFO can block, or act on the device.
        path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _cant_open(path, error) from None
    try:
        mode = os.fstat(path_fd).st_mode
        if not stat.S_ISREG(mode) and not (allow_pipe and stat.S_ISFIFO(mode)):
            raise errors.DataError(f"{path}: is {file_kind(mode)}, not {expected}")
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
        return errors.TryAgain(f"{path}: {os.strerror(code)}; try again, or raise `ulimit -n`")
    if code == errno.ENOENT and Path(path).is_symlink():
        return errors.InputMissing(
            f"{path}: is a link to {Path(path).readlink()}, which doesn't exist"
        )
    if code == errno.ENOENT:
        return errors.InputMissing(f"{path}: no such file")
    if code in (errno.EACCES, errno.EPERM):
        return errors.InputMissing(f"{path}: not readable by this user (permission denied)")
    return errors.InputMissing(
        f"{path}: {error.strerror if isinstance(error, OSError) else error}"
    )
