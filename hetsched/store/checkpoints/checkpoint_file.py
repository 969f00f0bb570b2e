"""Saves and loads checkpoints, completely or not at all.

A file is written without a name, synced, and then renamed over the previous one, so that there is
a whole checkpoint at any moment, also after a power cut.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from hetsched import __version__
from hetsched.errors import DataError, HetschedError, IOFailure
from hetsched.iterations.saved_state import SavedState, saved_shapes, value_shapes
from hetsched.store.arrays.input_files import open_regular
from hetsched.store.arrays.output_files import OutputFile, checked_target
from hetsched.store.arrays.publication import hidden_path, remove_leftover
from hetsched.store.arrays.unnamed_file import allocate, creation_errors, open_unnamed
from hetsched.store.checkpoints.members import MemberReader, needed_bytes, write_members
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
from hetsched.workload import Iterative

_NAN_BLOCK = 1 << 20
"""Elements that are searched for NaN at once."""


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
        Absolute. What is there must be a checkpoint (`target.check_target`).
    now : float
        Seconds since the epoch.

    Raises
    ------
    DataError
        The values contain NaN: the job can't continue from them.
    CantCreate, IOFailure
        There is no room, or the file can't be written. The previous one is unharmed.
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
    output = _create(path, needed_bytes(arrays, record))
    try:
        write_members(output.fd, record, arrays)
        output.publish()
    except HetschedError:
        raise
    except OSError as error:
        raise IOFailure(f"{path}: {error.strerror}") from None
    finally:
        output.discard()


def read_record(path: str) -> CheckpointRecord:
    """Return the record of a checkpoint, without reading its arrays.

    Raises
    ------
    InputMissing, DataError, IOFailure
    """
    with _open(path) as file:
        return decode(path, MemberReader(path, file).record())


def verify_checkpoint(path: str) -> CheckpointRecord:
    """Return the record of a checkpoint after reading all of the file. Raises as `read_record`."""
    with _open(path) as file:
        members = MemberReader(path, file)
        record = decode(path, members.record())
        members.verify()
        return record


def load_checkpoint(
    path: str, workload: Iterative, params: Any, problem: Problem
) -> tuple[CheckpointRecord, SavedState]:
    """Read a checkpoint of `problem`.

    Raises
    ------
    InputMissing
        There is no such file.
    DataError
        It is damaged, of another problem or version, or contains NaN.
    IOFailure
    """
    with _open(path) as file:
        members = MemberReader(path, file)
        record = decode(path, members.record())
        check_problem(path, record, problem)
        check_iteration(path, record, workload.max_iterations(params))
        arrays = _read(path, members, "state", record.arrays, saved_shapes(workload, params))
        values = _read(path, members, "values", record.values, value_shapes(workload, params))
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


def _read(
    path: str,
    members: MemberReader,
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
    return {name: members.array(f"{folder}/{name}", *expected[name]) for name in expected}


def _create(path: str, nbytes: int) -> OutputFile:
    target, mode = checked_target(path, force=True)
    # The same token each time, so that a job that starts over removes what a crash left behind.
    name = hashlib.blake2b(os.fsencode(Path(target).name), digest_size=8)
    token = f"checkpoint-{name.hexdigest()}"
    remove_leftover(target, token)
    with creation_errors(path):
        fd, temporary = open_unnamed(target, hidden_path(target, token))
    output = OutputFile(fd, 0, target, temporary, True, mode, token)
    try:
        allocate(path, fd, nbytes)
    except BaseException:
        output.discard()
        raise
    return output


def _open(path: str) -> IO[bytes]:
    return open(open_regular(path, "a checkpoint"), "rb")


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
            for start in range(0, flat.size, _NAN_BLOCK):
                if np.isnan(flat[start : start + _NAN_BLOCK]).any():
                    raise DataError(f"{where}: {name} contains NaN; no job can continue from it")
