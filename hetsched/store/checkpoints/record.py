"""The record in a checkpoint: which problem it belongs to, and how far the job was."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from hetsched.errors import DataError
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
    """What a job computes. A checkpoint fits a job with the same problem.

    Attributes
    ----------
    state_version : int
        `Iterative.state_version`.
    params : mapping
        All parameters, except those that a resumed job may change (`Iterative.limits`).
    inputs : mapping
        Name -> identity.
    """

    workload: str
    state_version: int
    params: dict[str, Any]
    load: int
    inputs: dict[str, InputIdentity] = {}


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The member record.json.

    Attributes
    ----------
    iteration : int
        The last complete one.
    residual : float or None
        After it; None: there is none.
    written : str
        UTC, ISO 8601.
    arrays, values : mapping
        Name -> shape and dtype of the members "state/NAME" and "values/NAME".
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
    """Return the problem, and the parameters that a resumed job may change."""
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
    """Return the record as indented JSON."""
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
    """Check that a checkpoint belongs to the problem of `job`."""
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
