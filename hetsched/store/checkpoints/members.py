"""Members of a ``.npz`` file: uncompressed arrays and a record, written and read in blocks.

The format: a ZIP archive whose members are `.npy` files, and record.json. So `numpy.load` reads
the arrays, `unzip -p FILE record.json` the record. The archive's CRC-32 of each member tells
whether its data are whole. Source: NumPy, `numpy.lib.npyio.NpzFile`.
"""

from __future__ import annotations

import errno
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

import numpy as np

from hetsched.errors import DataError, IOFailure
from hetsched.store.arrays.npy_format import npy_prefix
from hetsched.units import format_bytes

RECORD = "record.json"
MAX_RECORD = 4 << 20
"""Bytes; a record has some hundred."""
BLOCK = 16 << 20
"""Bytes written or read at once."""
MEMBER_OVERHEAD = 1024
"""Upper bound of the bytes that a member's headers take."""
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)
_DAMAGES = (
    zipfile.BadZipFile,
    EOFError,
    KeyError,
    OverflowError,
    RuntimeError,
    ValueError,
    struct.error,
)
"""What `zipfile` raises for a damaged archive."""


def needed_bytes(arrays: Mapping[str, np.ndarray], record: bytes) -> int:
    """Return an upper bound of the size of the file."""
    data = sum(array.nbytes for array in arrays.values())
    return data + len(record) + MEMBER_OVERHEAD * (len(arrays) + 2)


def write_members(fd: int, record: bytes, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the whole file to `fd`, and cut it to its length. Raises OSError."""
    with open(os.dup(fd), "r+b") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_info(RECORD), record)
            for name, array in arrays.items():
                _write_array(archive, f"{name}.npy", array)
        file.flush()
        os.ftruncate(fd, file.tell())


def _write_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    with archive.open(_info(name), "w", force_zip64=True) as member:
        member.write(npy_prefix(array.shape, array.dtype.str))
        for start in range(0, len(data), BLOCK):
            member.write(data[start : start + BLOCK])


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _FIRST_DATE)
    info.external_attr = 0o644 << 16
    return info


class MemberReader:
    """The members of an open file.

    Raises
    ------
    DataError
        From every method: damaged, or not as expected.
    IOFailure
    """

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self._path = path
        with self._errors("the file"):
            start = file.read(6)
            if not start.startswith(b"PK"):
                raise DataError(f"{path}: {_other_kind(start)}, not a checkpoint")
            self._archive = zipfile.ZipFile(file)

    def record(self) -> bytes:
        """Return the record."""
        if RECORD not in self._archive.namelist():
            raise DataError(f"{self._path}: has no {RECORD}: not a checkpoint")
        with self._errors(RECORD), self._open(RECORD, MAX_RECORD) as member:
            return member.read()

    def verify(self) -> None:
        """Read everything, which compares the CRC of each member."""
        for info in self._archive.infolist():
            with self._errors(info.filename), self._open(info.filename, info.file_size) as member:
                while member.read(BLOCK):
                    pass

    def array(self, name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Return an array, which must have this shape and dtype."""
        values = np.empty(shape, dtype)
        prefix = npy_prefix(shape, values.dtype.str)
        size = len(prefix) + values.nbytes
        with self._errors(name), self._open(f"{name}.npy", size) as member:
            header = member.read(len(prefix))
            if header != prefix:
                pickled = "pickled, and pickles are never loaded" if b"|O" in header else "damaged"
                raise DataError(f"{self._path}: {name} isn't as its record says: {pickled}")
            data = values.reshape(-1).view(np.uint8).data
            for start in range(0, len(data), BLOCK):
                _read_block(member, data[start : start + BLOCK])
            if member.read(1):  # also compares the CRC
                raise zipfile.BadZipFile("longer than expected")
        return values

    def _open(self, name: str, max_bytes: int) -> IO[bytes]:
        info = self._archive.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED:
            raise DataError(f"{self._path}: {name} is compressed; checkpoints never are")
        if info.file_size > max_bytes or info.file_size != info.compress_size:
            size = format_bytes(info.file_size)
            raise zipfile.BadZipFile(f"{size} instead of {format_bytes(max_bytes)}")
        return self._archive.open(info)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except DataError:
            raise
        except _DAMAGES as error:
            reason = " ".join(str(error.args[0] if error.args else error).split())
            raise DataError(
                f"{self._path}: damaged or truncated checkpoint: {what}: {reason[:200]}"
            ) from None
        except OSError as error:
            if error.errno == errno.EINVAL:  # a seek to before the beginning
                raise DataError(
                    f"{self._path}: damaged or truncated checkpoint: {what}: no such place in it"
                ) from None
            raise IOFailure(f"{self._path}: {error.strerror}") from None


def _read_block(member: IO[bytes], block: memoryview) -> None:
    filled = 0
    while filled < len(block):
        count = member.readinto(block[filled:])  # type: ignore[attr-defined]
        if not count:
            raise EOFError("ends too early")
        filled += count


def _other_kind(start: bytes) -> str:
    if not start:
        return "is empty"
    if start[:1] == b"\x80":
        return "is a pickle, which is never loaded"
    return "is a .npy file" if start == b"\x93NUMPY" else "has the wrong magic bytes"
