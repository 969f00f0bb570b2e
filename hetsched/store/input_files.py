"""Opens input files: arrays in ``.npy`` files, and small files read as a whole.

Devices `pread` the data from the descriptors opened here, starting at the header's `offset`.
"""

from __future__ import annotations

import errno
import io
import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from hetsched.errors import DataError, InputMissing, IOFailure, TryAgain
from hetsched.units import format_bytes

MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000
"""Bytes; NumPy's own limit. Real headers have 128."""
MAX_EXTENT = 2**63
NUMERIC = "biufc"
"""NumPy's letters of the kinds of dtype that can be converted to what a kernel expects."""


@dataclass(frozen=True)
class NpyHeader:
    """The array in a ``.npy`` file. `dtype` is NumPy's string, byte order included ("<c8"); the
    data start at `offset`, and have `nbytes`.
    """

    shape: tuple[int, ...]
    dtype: str
    order: str
    offset: int
    nbytes: int


def read_header(path: str, fd: int) -> NpyHeader:
    """Read the header of the file behind `fd`; `path` is used in errors only."""
    size = os.fstat(fd).st_size
    try:
        start = io.BytesIO(os.pread(fd, MAX_HEADER + 12, 0))
    except OSError as error:
        raise IOFailure(f"{path}: {error.strerror}") from None
    _check_magic(path, start.getvalue(), size)
    shape, is_fortran, dtype = parse_header(path, start)
    if dtype.kind not in NUMERIC:
        kind = f"records {dtype.descr!r:.60}" if dtype.names else dtype.name
        raise DataError(f"{path}: holds {kind}; only numbers are supported")
    offset = start.tell()
    nbytes = math.prod(shape) * dtype.itemsize  # Python's integers don't overflow
    extents = "x".join(map(str, shape)) or "()"
    if nbytes == 0:
        raise DataError(f"{path}: holds no elements (shape {extents})")
    if offset + nbytes > size:
        raise DataError(
            f"{path}: its header says {extents} {dtype.name} ({nbytes} bytes),"
            f" the file has {size - offset}: truncated, or the header is wrong"
        )
    if offset + nbytes < size:
        raise DataError(
            f"{path}: has {size - offset - nbytes} bytes more than its header says"
            f" ({extents} {dtype.name}); several arrays in one file?"
        )
    return NpyHeader(shape, dtype.str, "F" if is_fortran else "C", offset, nbytes)


def parse_header(path: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return (shape, is in Fortran order, dtype); leaves `file` at the data. Raises DataError."""
    try:
        version = npy.read_magic(file)
        # 3.0 differs in the encoding of names of fields, and records are refused.
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(file, max_header_size=MAX_HEADER)
    except Exception as error:  # NumPy's parser raises a dozen different ones
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: broken or truncated .npy header: {reason:.120}") from None
    if dtype.hasobject:
        raise DataError(f"{path}: holds pickled Python objects, which are never loaded")
    if any(not 0 <= extent < MAX_EXTENT for extent in shape):
        raise DataError(f"{path}: broken .npy header: impossible shape {shape!r:.60}")
    return shape, is_fortran, dtype


def _check_magic(path: str, start: bytes, size: int) -> None:
    if size == 0:
        raise DataError(f"{path}: is empty, not a .npy file")
    if not start.startswith(MAGIC):
        pickled = start[:1] == b"\x80"
        kind = "a pickle, which is never loaded" if pickled else "not a .npy file (wrong magic)"
        raise DataError(f"{path}: is {kind}; numpy.save() writes a .npy file")
    if len(start) < 12 or start[6] not in (1, 2, 3):
        version = start[6] if len(start) > 6 else "?"
        raise DataError(
            f"{path}: .npy version {version}, or truncated; versions 1.0 to 3.0 can be read"
        )


def npy_prefix(shape: tuple[int, ...], dtype: str) -> bytes:
    file = io.BytesIO()
    descr = npy.dtype_to_descr(np.dtype(dtype))
    header = {"descr": descr, "fortran_order": False, "shape": tuple(map(int, shape))}
    npy.write_array_header_1_0(file, header)
    return file.getvalue()


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
