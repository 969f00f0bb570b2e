"""Headers of ``.npy`` files, read by NumPy and checked: numbers only, and exactly as long."""

from __future__ import annotations

import io
import math
import os
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from hetsched.errors import DataError, IOFailure

MAGIC = b"\x93NUMPY"
MAX_HEADER = 10_000
"""Bytes; NumPy's own limit. Real headers have 128."""
MAX_EXTENT = 2**63
NUMERIC = "biufc"
"""NumPy's letters of the kinds of dtype that can be converted to what a kernel expects."""


@dataclass(frozen=True)
class NpyHeader:
    """The array in a ``.npy`` file.

    Attributes
    ----------
    shape : tuple of int
    dtype : str
        NumPy's dtype string, byte order included ("<c8").
    order : "C" or "F"
    offset : int, bytes
        Start of the data.
    nbytes : int, bytes
        Size of the data alone.
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
    """Return the bytes before the data of a C-ordered ``.npy`` file, version 1.0."""
    file = io.BytesIO()
    descr = npy.dtype_to_descr(np.dtype(dtype))
    header = {"descr": descr, "fortran_order": False, "shape": tuple(map(int, shape))}
    npy.write_array_header_1_0(file, header)
    return file.getvalue()
