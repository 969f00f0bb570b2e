"""Saves and loads checkpoints, completely or not at all.

A checkpoint is an ``.npz`` file that `numpy.load` reads, with a record.json (`unzip -p FILE
record.json`). The CRC-32 of each member tells whether its data are whole. It is written under a
hidden name, synced, and then renamed over the previous one, so that there is a whole checkpoint at
any moment, also after a power cut.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from hetsched import __version__
from hetsched.errors import CantCreate, DataError, HetschedError, InputMissing, IOFailure
from hetsched.iterations.saved_state import SavedState, saved_shapes, value_shapes
from hetsched.store.arrays.input_files import open_regular
from hetsched.store.arrays.npy_format import MAX_HEADER, parse_header
from hetsched.store.arrays.output_files import OutputFile, check_room, create_file
from hetsched.store.arrays.publication import creation_errors
from hetsched.store.checkpoints.record import (
    CheckpointRecord,
    Problem,
    SavedArray,
    check_problem,
    decode,
    encode,
    finite_or_none,
    iso_date,
)
from hetsched.units import format_bytes
from hetsched.workload import Iterative

RECORD = "record.json"
MAX_RECORD = 4 << 20
"""Bytes; a record has some hundred."""
BLOCK = 16 << 20
"""Bytes read at once."""
MEMBER_OVERHEAD = 1024
"""Upper bound of the bytes that a member's headers take."""
NAN_BLOCK = 1 << 20
"""Elements that are searched for NaN at once."""
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


def save_checkpoint(
    path: str,
    saved: SavedState,
    problem: Problem,
    *,
    limits: Mapping[str, Any] | None = None,
    residual: float | None = None,
    now: float,
) -> None:
    """Write a checkpoint, in place of the previous one.

    Parameters
    ----------
    path : str
        Absolute. What is there must be a checkpoint (`check_target`).
    now : float
        Seconds since the epoch.
    """
    arrays = _members(saved)
    _check_no_nan(f"iteration {saved.iteration}", arrays)
    record = encode(
        CheckpointRecord(
            hetsched=__version__,
            problem=problem,
            limits=dict(limits or {}),
            iteration=saved.iteration,
            residual=finite_or_none(residual),
            written=iso_date(now),
            arrays=_shapes(saved.arrays),
            values=_shapes(saved.values),
        )
    )
    needed = sum(array.nbytes for array in arrays.values()) + len(record)
    output = _create(path, needed + MEMBER_OVERHEAD * (len(arrays) + 2))
    try:
        _write(output.fd, record, arrays)
        output.publish()
    except HetschedError:
        raise
    except OSError as error:
        raise IOFailure(f"{path}: {error.strerror}") from None
    finally:
        output.discard()


def read_record(path: str) -> CheckpointRecord:
    """Return the record of a checkpoint, without reading its arrays."""
    with _opened(path) as archive:
        return _record(path, archive)


def verify_checkpoint(path: str) -> CheckpointRecord:
    """Return the record of a checkpoint after reading all of the file. Raises as `read_record`."""
    with _opened(path) as archive:
        record = _record(path, archive)
        for info in archive.infolist():
            with _damage(path, info.filename), _member(path, archive, info.filename) as member:
                while member.read(BLOCK):  # the end compares the CRC
                    pass
        return record


def load_checkpoint(
    path: str, workload: Iterative, params: Any, problem: Problem
) -> tuple[CheckpointRecord, SavedState]:
    """Read a checkpoint of `problem`."""
    with _opened(path) as archive:
        record = _record(path, archive)
        check_problem(path, record, problem)
        check_iteration(path, record, workload.max_iterations(params))
        arrays = _read(path, archive, "state", record.arrays, saved_shapes(workload, params))
        values = _read(path, archive, "values", record.values, value_shapes(workload, params))
    saved = SavedState(record.iteration, arrays, values)
    _check_no_nan(path, _members(saved))
    return record, saved


def check_iteration(path: str, record: CheckpointRecord, limit: int) -> None:
    """Raise DataError unless a job of at most `limit` iterations can continue from `record`."""
    if record.iteration < 0:
        raise DataError(f"{path}: damaged checkpoint: iteration {record.iteration}")
    if record.iteration > limit:
        raise DataError(
            f"{path}: a checkpoint after iteration {record.iteration}; this job ends after"
            f" {limit}: give it a higher limit, or an earlier checkpoint"
        )


def check_folder(path: str, nbytes: int) -> None:
    """Check that a checkpoint of `nbytes` can be created at `path`, by creating a file there.

    The mode bits of a folder don't tell: a file system may be read-only, or full.
    """
    output = create_file(path, 0, force=True)
    try:
        check_room(path, output.fd, nbytes)
    finally:
        output.discard()


def check_target(path: str, problem: Problem | None) -> None:
    """Check that nothing but a checkpoint of this problem would be replaced at `path`.

    `problem`: None: not known yet; any checkpoint will do.
    """
    with creation_errors(path):
        if not Path(os.path.realpath(path)).parent.is_dir():
            raise FileNotFoundError
    try:
        record = read_record(path)
        if problem is not None:
            check_problem(path, record, problem)
    except InputMissing:
        if os.path.lexists(path):
            raise CantCreate(f"{path}: exists and can't be read; give another name") from None
    except DataError as error:
        raise CantCreate(f"{error}; it is not replaced: give another name") from None


# ---- writing


def _create(path: str, nbytes: int) -> OutputFile:
    # The same token each time, so that a job that starts over removes what a crash left behind.
    name = os.fsencode(Path(os.path.realpath(path)).name)
    token = f"checkpoint-{hashlib.blake2b(name, digest_size=8).hexdigest()}"
    return create_file(path, nbytes, force=True, token=token)


def _write(fd: int, record: bytes, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the whole file, as `numpy.savez` would, and cut it to its length. Raises OSError."""
    with open(os.dup(fd), "r+b") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(RECORD, _FIRST_DATE), record)
            for name, array in arrays.items():
                info = zipfile.ZipInfo(f"{name}.npy", _FIRST_DATE)
                with archive.open(info, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        file.flush()
        os.ftruncate(fd, file.tell())


def _members(saved: SavedState) -> dict[str, np.ndarray]:
    return {
        **{f"state/{name}": array for name, array in saved.arrays.items()},
        **{f"values/{name}": value for name, value in saved.values.items()},
    }


def _shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, SavedArray]:
    return {name: SavedArray(array.shape, array.dtype.name) for name, array in arrays.items()}


def _check_no_nan(where: str, arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind in "fc":
            flat = array.reshape(-1)
            for start in range(0, flat.size, NAN_BLOCK):
                if np.isnan(flat[start : start + NAN_BLOCK]).any():
                    raise DataError(f"{where}: {name} contains NaN; no job can continue from it")


# ---- reading


@contextmanager
def _opened(path: str) -> Iterator[zipfile.ZipFile]:
    with open(open_regular(path, "a checkpoint"), "rb") as file, _damage(path, "the file"):
        start = file.read(6)
        if not start.startswith(b"PK"):
            raise DataError(f"{path}: {_other_kind(start)}, not a checkpoint")
        with zipfile.ZipFile(file) as archive:
            yield archive


def _record(path: str, archive: zipfile.ZipFile) -> CheckpointRecord:
    if RECORD not in archive.namelist():
        raise DataError(f"{path}: has no {RECORD}: not a checkpoint")
    with _damage(path, RECORD), _member(path, archive, RECORD, MAX_RECORD) as member:
        return decode(path, member.read())


def _read(
    path: str,
    archive: zipfile.ZipFile,
    folder: str,
    recorded: Mapping[str, SavedArray],
    expected: Mapping[str, tuple[tuple[int, ...], str]],
) -> dict[str, np.ndarray]:
    for name in sorted(recorded.keys() | expected.keys()):
        if name not in recorded or name not in expected:
            raise DataError(
                f"{path}: checkpoint of another version of the workload: {folder}/{name} is"
                f" {'not there' if name in expected else 'unknown'}"
            )
        saved, (shape, dtype) = recorded[name], expected[name]
        if saved.shape != shape or saved.dtype != np.dtype(dtype).name:
            raise DataError(
                f"{path}: checkpoint of another version of the workload: {folder}/{name} is"
                f" {saved.shape} {saved.dtype} instead of {shape} {dtype}"
            )
    return {name: _array(path, archive, f"{folder}/{name}", *expected[name]) for name in expected}


def _array(
    path: str, archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], dtype: str
) -> np.ndarray:
    """Return a member, which must be as its record says: nothing larger is read."""
    nbytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    with (
        _damage(path, name),
        _member(path, archive, f"{name}.npy", nbytes + MAX_HEADER) as member,
    ):
        found, _, found_dtype = parse_header(f"{path}: {name}", member)
        if found != shape or found_dtype != np.dtype(dtype):
            raise DataError(f"{path}: {name} is {found} {found_dtype}, not as its record says")
    with _damage(path, name), _member(path, archive, f"{name}.npy", nbytes + MAX_HEADER) as member:
        array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):  # also compares the CRC
            raise zipfile.BadZipFile("longer than expected")
    return array


def _member(
    path: str, archive: zipfile.ZipFile, name: str, max_bytes: int | None = None
) -> IO[bytes]:
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED:
        raise DataError(f"{path}: {name} is compressed; checkpoints never are")
    limit = info.file_size if max_bytes is None else max_bytes
    if info.file_size > limit or info.file_size != info.compress_size:
        raise zipfile.BadZipFile(f"{format_bytes(info.file_size)} instead of {limit} bytes")
    return archive.open(info)


@contextmanager
def _damage(path: str, what: str) -> Iterator[None]:
    """Translate the errors of a damaged file to DataError."""
    try:
        yield
    except HetschedError:
        raise
    except _DAMAGES as error:
        reason = " ".join(str(error.args[0] if error.args else error).split())
        raise DataError(
            f"{path}: damaged or truncated checkpoint: {what}: {reason[:200]}"
        ) from None
    except OSError as error:
        if error.errno == errno.EINVAL:  # a seek to before the beginning
            raise DataError(
                f"{path}: damaged or truncated checkpoint: {what}: no such place in it"
            ) from None
        raise IOFailure(f"{path}: {error.strerror}") from None


def _other_kind(start: bytes) -> str:
    if not start:
        return "is empty"
    if start[:1] == b"\x80":
        return "is a pickle, which is never loaded"
    return "is a .npy file" if start == b"\x93NUMPY" else "has the wrong magic bytes"
