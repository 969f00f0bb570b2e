"""Members of .npz files: their shapes and dtypes, without reading their data.

An .npz file is a zip archive of .npy files. Nothing in it is unpickled, and nothing is read whose
size isn't known first: a small archive may claim to hold terabytes.
"""

from __future__ import annotations

import errno
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import numpy as np

from hetsched.errors import DataError
from hetsched.store.arrays.npy_format import MAX_HEADER, NUMERIC
from hetsched.store.matrices.header import MatrixHeader

MAGIC = b"PK"
MAX_MEMBERS = 64
"""SciPy writes at most six. Arbitrary."""
MAX_TEXT = 1 << 12
"""Bytes of the small members `format` and `shape`."""
FORMATS = ("csr", "csc", "bsr", "coo", "dia")
"""Of scipy.sparse.save_npz; the values of each are the member `data`."""


@dataclass(frozen=True)
class Member:
    """An array in the archive; `dtype` is NumPy's name."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def read_npz_header(path: str, file: IO[bytes]) -> MatrixHeader:
    """Return what the archive holds: a sparse matrix of SciPy, or one array.

    Raises
    ------
    DataError
        Anything else, or a broken archive.
    """
    with broken_archive(path), zipfile.ZipFile(file) as archive:
        members = _members(path, archive)
        if "format" in members:
            return _sparse_header(path, archive, members)
    if not members:
        raise DataError(f"{path}: holds no arrays")
    if len(members) != 1:
        names = ", ".join(sorted(members)[:4])
        raise DataError(
            f"{path}: holds the arrays {names}: neither one array nor a sparse matrix of"
            " scipy.sparse.save_npz"
        )
    (member,) = members.values()
    if not member.size:
        raise DataError(f"{path}: holds no elements")
    return MatrixHeader(member.shape, member.dtype.newbyteorder("=").name)


@contextmanager
def broken_archive(path: str) -> Iterator[None]:
    """Translate what a broken archive raises to a DataError."""
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        RuntimeError,
        OverflowError,
        KeyError,
        ValueError,
    ) as error:
        raise DataError(f"{path}: broken .npz file: {str(error)[:200]}") from None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise DataError(f"{path}: broken .npz file: a position before its start") from None


def _members(path: str, archive: zipfile.ZipFile) -> Mapping[str, Member]:
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise DataError(f"{path}: {len(infos)} arrays in one file; at most {MAX_MEMBERS}")
    return {
        info.filename.removesuffix(".npy"): _member(path, archive, info)
        for info in infos
        if info.filename.endswith(".npy")
    }


def _member(path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream, max_header_size=MAX_HEADER)
        if dtype.hasobject:
            raise DataError(f"{path}: holds pickled Python objects, which are never loaded")
        if dtype.kind not in NUMERIC and info.filename != "format.npy":
            raise DataError(f"{path}: {info.filename} holds {dtype}; only numbers are supported")
        member = Member(shape, dtype)
        if stream.tell() + member.size * dtype.itemsize != info.file_size:
            raise DataError(f"{path}: {info.filename} isn't as long as its header says")
    return member


def _sparse_header(
    path: str, archive: zipfile.ZipFile, members: Mapping[str, Member]
) -> MatrixHeader:
    kind = str(_small(path, archive, "format").item(), "ascii")
    shape = tuple(int(n) for n in np.ravel(_small(path, archive, "shape")))
    if kind not in FORMATS or len(shape) != 2 or min(shape) < 0:
        raise DataError(
            f"{path}: a sparse matrix in the format {kind[:20]!r} with shape {shape};"
            f" supported are matrices in the formats {', '.join(FORMATS)}"
        )
    values = members["data"]
    return MatrixHeader((shape[0], shape[1]), _computed(values.dtype), values.size)


def _computed(dtype: np.dtype[np.generic]) -> str:
    if dtype.kind == "c":
        return dtype.newbyteorder("=").name
    return "float32" if dtype.kind == "f" and dtype.itemsize <= 4 else "float64"


def _small(path: str, archive: zipfile.ZipFile, name: str) -> np.ndarray:
    info = archive.getinfo(f"{name}.npy")
    if info.file_size > MAX_TEXT:
        raise DataError(f"{path}: its member {name} has {info.file_size} bytes")
    with archive.open(info) as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
