"""Saves and loads checkpoints, completely or not at all.

A checkpoint is an ``.npz`` file that `numpy.load` reads, with a record.json (`unzip -p FILE
record.json`). The CRC-32 of each member tells whether its data are whole. It is written under a
hidden name, synced, and then renamed over the previous one, so that there is a whole checkpoint at
any moment, also after a power cut.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from hetsched import __version__
from hetsched.errors import CantCreate, DataError, HetschedError, InputMissing, IOFailure
from hetsched.iterations.saved_state import SavedState, saved_shapes, value_shapes
from hetsched.store.input_files import MAX_HEADER, open_regular, parse_header
from hetsched.store.output_files import OutputFile, check_room, create_file, creation_errors
from hetsched.units import format_bytes
from hetsched.workload import Iterative

SCHEMA = "hetsched.checkpoint/1"
_DIGEST_BYTES = 16


class SavedArray(msgspec.Struct, frozen=True):
    """An array in the file, or an input of the job. `dtype`: NumPy's name for it."""

    shape: tuple[int, ...]
    dtype: str


class InputIdentity(msgspec.Struct, frozen=True):
    """An input. `source`: "blake2b:..." of its data, "seed:..." if generated; "": unknown."""

    shape: tuple[int, ...]
    dtype: str
    source: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What a job computes. A checkpoint fits a job with the same problem. `params`: all but those
    that a resumed job may change (`Iterative.limits`).
    """

    workload: str
    state_version: int
    params: dict[str, Any]
    load: int
    inputs: dict[str, InputIdentity] = {}


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The member record.json: `residual` after the last complete `iteration`; `written` is UTC,
    ISO 8601; `arrays` and `values` describe the members "state/NAME" and "values/NAME".
    """

    schema: str = SCHEMA
    hetsched: str
    problem: Problem
    limits: dict[str, Any] = {}
    iteration: int
    residual: float | None = None
    written: str
    arrays: dict[str, SavedArray]
    values: dict[str, SavedArray]


class _Schema(msgspec.Struct):
    schema: str = ""


_decode_schema = msgspec.json.Decoder(_Schema).decode
_decode_record = msgspec.json.Decoder(CheckpointRecord).decode


def data_digest(array: np.ndarray) -> str:
    """Return the `InputIdentity.source` of data in memory. About 1 GB/s, without the GIL."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f"blake2b:{hashlib.blake2b(raw.data, digest_size=_DIGEST_BYTES).hexdigest()}"


def finite_or_none(residual: float | None) -> float | None:
    """Return `residual` if JSON has a number for it."""
    return residual if residual is not None and math.isfinite(residual) else None


def iso_date(now: float) -> str:
    """Return seconds since the epoch as a date, "2026-03-01T12:00:00Z"."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def problem_of(
    workload: Iterative, params: Any, inputs: Mapping[str, InputIdentity]
) -> tuple[Problem, dict[str, Any]]:
    every = msgspec.to_builtins(params)
    limits = {name: every.pop(name) for name in workload.limits if name in every}
    problem = Problem(
        workload=workload.name,
        state_version=workload.state_version,
        params=every,
        load=workload.load(params),
        inputs=dict(inputs),
    )
    return problem, limits


def encode(record: CheckpointRecord) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def decode(path: str, raw: bytes) -> CheckpointRecord:
    """Return the record. Raises DataError: invalid, or of another format's version."""
    try:
        schema = _decode_schema(raw).schema
        if schema == SCHEMA:
            return _decode_record(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: damaged checkpoint: its record is invalid ({error})") from None
    raise DataError(
        f"{path}: checkpoint of format {schema[:60]!r}; this version of hetsched reads {SCHEMA!r}"
    )


def check_problem(path: str, record: CheckpointRecord, job: Problem) -> None:
    difference = _difference(record.problem, job)
    if difference:
        raise DataError(f"{path}: checkpoint of another problem: {difference}")


def _difference(saved: Problem, job: Problem) -> str:
    if saved.workload != job.workload:
        return f"of {saved.workload}, the job runs {job.workload}"
    if saved.state_version != job.state_version:
        return (
            f"written by version {saved.state_version} of {job.workload}'s state,"
            f" version {job.state_version} is installed"
        )
    return (
        _params_difference(saved.params, job.params)
        or ("" if saved.load == job.load else f"{saved.load} rows, the job has {job.load}")
        or _inputs_difference(saved.inputs, job.inputs)
    )


def _params_difference(saved: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    for name in sorted(saved.keys() | job.keys()):
        if name not in saved or name not in job:
            place = "the checkpoint" if name in saved else "the job"
            return f"only {place} has the parameter {name}"
        if saved[name] != job[name]:
            return f"{name} is {saved[name]!r} there, {job[name]!r} in the job"
    return ""


def _inputs_difference(
    saved: Mapping[str, InputIdentity], job: Mapping[str, InputIdentity]
) -> str:
    if saved.keys() != job.keys():
        return f"inputs {_names(saved)} there, {_names(job)} in the job"
    for name, theirs in saved.items():
        ours, label = job[name], f"input {name}" if name else "the input"
        if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
            return (
                f"{label} was {_extents(theirs.shape)} {theirs.dtype},"
                f" it is {_extents(ours.shape)} {ours.dtype} in the job"
            )
        if theirs.source and ours.source and theirs.source != ours.source:
            return f"{label} has other values"
    return ""


def _names(inputs: Mapping[str, Any]) -> str:
    return ", ".join(sorted(inputs)) or "none"


def _extents(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "()"


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
    """Write a checkpoint, in place of the previous one at `path`, which is absolute."""
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
    flat = np.empty(math.prod(shape), dtype)
    raw, end = flat.view(np.uint8), 0
    with (
        _damage(path, name),
        _member(path, archive, f"{name}.npy", flat.nbytes + MAX_HEADER) as member,
    ):
        found, is_fortran, found_dtype = parse_header(f"{path}: {name}", member)
        if found != shape or found_dtype != flat.dtype:
            raise DataError(f"{path}: {name} is {found} {found_dtype}, not as its record says")
        while block := member.read(BLOCK):  # the end compares the CRC
            raw[end : end + len(block)] = np.frombuffer(block, np.uint8)
            end += len(block)
        if end != flat.nbytes:
            raise zipfile.BadZipFile(f"{end} instead of {flat.nbytes} bytes")
    return flat.reshape(shape, order="F" if is_fortran else "C")


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
