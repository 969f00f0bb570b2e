"""Saves and loads checkpoints, completely or not at all.

A checkpoint is an ``.npz`` file that `numpy.load` reads, with a record.json; the CRC-32 of each
member tells whether its data are whole. It is synced under a hidden name and renamed over the
previous one, so that there is a whole checkpoint at any moment, also after a power cut.
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Annotated, Any

import msgspec
import numpy as np

from hetsched import __version__, errors
from hetsched.iterations import saved_state
from hetsched.store import formats, output_files
from hetsched.units import format_bytes
from hetsched.workload import ArraySpec, Iterative

SCHEMA = "hetsched.checkpoint/1"
RECORD = "record.json"
MAX_RECORD = 4 << 20
"""Bytes; a record has some hundred."""
MEMBER_OVERHEAD = 1024
"""Upper bound of the bytes that a member's headers take."""
_DIGEST_BYTES = 16


class InputIdentity(msgspec.Struct, frozen=True):
    """An input. `source`: "blake2b:..." of its data, "seed:..." if generated; "": unknown."""

    shape: tuple[int, ...]
    dtype: str
    source: str = ""

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape)) or '()'} {self.dtype}"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What a job computes. `params`: all but those that a resumed job may change."""

    workload: str
    state_version: int
    params: dict[str, Any]
    load: int
    inputs: dict[str, InputIdentity] = {}


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """The member record.json: `residual` after the last complete `iteration`.

    `job`: whose checkpoint it is, by its journal and number; "": of a job that no journal has.
    """

    hetsched: str
    job: str = ""
    problem: Problem
    limits: dict[str, Any] = {}
    iteration: Annotated[int, msgspec.Meta(ge=0)]
    residual: float | None = None
    written: datetime


_decode = msgspec.json.Decoder(CheckpointRecord).decode


def data_digest(array: np.ndarray) -> str:
    """Return the `InputIdentity.source` of data in memory. About 1 GB/s, without the GIL."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f"blake2b:{hashlib.blake2b(raw.data, digest_size=_DIGEST_BYTES).hexdigest()}"


def problem_of(
    workload: Iterative, params: Any, specs: Sequence[ArraySpec], sources: Mapping[str, str]
) -> tuple[Problem, dict[str, Any]]:
    """Return the problem and its limits. `sources`: of inputs, as far as they are known."""
    every = msgspec.to_builtins(params)
    limits = {name: every.pop(name) for name in workload.limits if name in every}
    load = workload.load(params)
    inputs = {
        spec.name: InputIdentity(
            spec.shape(load), np.dtype(spec.dtype).name, sources.get(spec.name, "")
        )
        for spec in specs
        if spec.is_input
    }
    problem = Problem(
        workload=workload.name,
        state_version=workload.state_version,
        params=every,
        load=load,
        inputs=inputs,
    )
    return problem, limits


def check_problem(path: str, record: CheckpointRecord, job: Problem) -> None:
    saved, ours = _facts(record.problem), _facts(job)
    for fact in [*saved, *(ours.keys() - saved.keys())]:
        there, here = saved.get(fact), ours.get(fact)
        if there != here:
            raise errors.DataError(
                f"{path}: checkpoint of another problem: {fact} is {there!r} there, {here!r} in"
                " the job"
            )
    for name, array in record.problem.inputs.items():
        if array.source and job.inputs[name].source not in ("", array.source):
            raise errors.DataError(
                f"{path}: checkpoint of another problem: input {name} has other values"
            )


def _facts(problem: Problem) -> dict[str, Any]:
    return {
        "the workload": problem.workload,
        "the version of its state": problem.state_version,
        **dict(sorted(problem.params.items())),
        "the number of rows": problem.load,
        **{f"input {name}": str(array) for name, array in problem.inputs.items()},
    }


def check_iteration(path: str, record: CheckpointRecord, limit: int) -> None:
    """Raise DataError unless a job of at most `limit` iterations can continue from `record`."""
    if record.iteration > limit:
        raise errors.DataError(
            f"{path}: a checkpoint after iteration {record.iteration}; this job ends after"
            f" {limit}: give it a higher limit, or an earlier checkpoint"
        )


def check_target(path: str, problem: Problem | None) -> None:
    """Check that nothing but a checkpoint of this problem, None: any, would be replaced."""
    try:
        record = read_record(path)
        if problem is not None:
            check_problem(path, record, problem)
    except errors.InputMissing:
        if os.path.lexists(path):
            raise errors.CantCreate(
                f"{path}: exists and can't be read; give another name"
            ) from None
    except errors.DataError as error:
        raise errors.CantCreate(f"{error}; it is not replaced: give another name") from None


# ---- writing


def save_checkpoint(
    path: str,
    saved: saved_state.SavedState,
    problem: Problem,
    *,
    limits: Mapping[str, Any] | None = None,
    residual: float | None = None,
    job: str = "",
    now: float,
) -> None:
    """Write a checkpoint, in place of the previous one at `path`, which is absolute."""
    arrays = _members(saved)
    _check_no_nan(f"iteration {saved.iteration}", arrays)
    record = CheckpointRecord(
        hetsched=__version__,
        job=job,
        problem=problem,
        limits=dict(limits or {}),
        iteration=saved.iteration,
        residual=residual,
        written=datetime.fromtimestamp(int(now), UTC),
    )
    # JSON has no numbers that aren't finite: such a residual becomes null
    text = msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    nbytes = sum(array.nbytes + MEMBER_OVERHEAD for array in arrays.values())
    nbytes += len(text) + 2 * MEMBER_OVERHEAD
    with (
        output_files.publishing(output_files.create_file(path, nbytes, force=True)) as output,
        open(output.fd, "r+b", closefd=False) as file,
    ):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(RECORD), text)
            for name, array in arrays.items():
                info = zipfile.ZipInfo(f"{name}.npy")
                with archive.open(info, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
        file.truncate()


def _members(saved: saved_state.SavedState) -> dict[str, np.ndarray]:
    return {
        **{f"state/{name}": array for name, array in saved.arrays.items()},
        **{f"values/{name}": value for name, value in saved.values.items()},
    }


def _check_no_nan(where: str, arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        # The least of numbers is NaN if one of them is; no array of flags is needed
        if array.dtype.kind in "fc" and array.size and np.isnan(array.min()):
            raise errors.DataError(f"{where}: {name} contains NaN; no job can continue from it")


# ---- reading


def read_record(path: str) -> CheckpointRecord:
    with _opened(path) as (_, record):
        return record


def load_checkpoint(
    path: str, workload: Iterative, params: Any, problem: Problem
) -> tuple[CheckpointRecord, saved_state.SavedState]:
    with _opened(path) as (archive, record):
        check_problem(path, record, problem)
        check_iteration(path, record, workload.max_iterations(params))
        arrays = _read(path, archive, "state", saved_state.saved_shapes(workload, params))
        values = _read(path, archive, "values", saved_state.value_shapes(workload, params))
    saved = saved_state.SavedState(record.iteration, arrays, values)
    _check_no_nan(path, _members(saved))
    return record, saved


@contextmanager
def _opened(path: str) -> Iterator[tuple[zipfile.ZipFile, CheckpointRecord]]:
    with (
        open(formats.open_regular(path, "a checkpoint"), "rb") as file,
        formats.open_archive(path, "a checkpoint", file) as archive,
    ):
        with _member(path, archive, RECORD, MAX_RECORD) as member:
            raw = member.read()
        try:
            record = _decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise errors.DataError(
                f"{path}: damaged checkpoint, or of another version than {SCHEMA!r}, which this"
                f" version of hetsched reads: {error}"
            ) from None
        yield archive, record


def _read(
    path: str,
    archive: zipfile.ZipFile,
    folder: str,
    shapes: Mapping[str, tuple[tuple[int, ...], str]],
) -> dict[str, np.ndarray]:
    arrays = {}
    for name, (shape, dtype) in shapes.items():
        file, expected = f"{folder}/{name}.npy", np.dtype(dtype)
        most = math.prod(shape) * expected.itemsize + formats.MAX_HEADER
        with _member(path, archive, file, most) as member:
            found, _, found_dtype = formats.parse_header(f"{path}: {file}", member)
            if found != shape or found_dtype != expected:
                raise errors.DataError(
                    f"{path}: checkpoint of another version of the workload: {file} is"
                    f" {found} {found_dtype} there, {shape} {expected} in the job"
                )
            member.seek(0)
            arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
            if member.read(1):  # the end compares the CRC
                raise zipfile.BadZipFile(f"{file} has too many bytes")
    return arrays


def _member(path: str, archive: zipfile.ZipFile, name: str, max_bytes: int) -> IO[bytes]:
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED:
        raise errors.DataError(f"{path}: {name} is compressed; checkpoints never are")
    if info.file_size > max_bytes:
        raise errors.DataError(f"{path}: {name} has {format_bytes(info.file_size)}, too many")
    return archive.open(info)
