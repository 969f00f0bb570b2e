"""Binds the outputs of a job: new files, or places in the arena."""

from __future__ import annotations

import math
import os

import numpy as np

from hetsched.engine.admission.resolved_job import ResolvedJob, array_shape, format_shape
from hetsched.errors import DataError, UsageError
from hetsched.job import ArenaOut, ArenaRef, FileOut, JobSpec
from hetsched.store.arrays.output_files import OutputFile, create_output
from hetsched.transport.device_messages import StoredArray
from hetsched.workload import ArraySpec


def bind_outputs(job: ResolvedJob, spec: JobSpec) -> None:
    """Create output files, and check arrays in the arena that results go into.

    Raises
    ------
    UsageError
        An unknown output.
    DataError
        A given array has the wrong shape or dtype, or overlaps an input.
    CantCreate
    """
    input_files = {_file_identity(fd) for fd in job.files}
    for array in job.specs:
        if not array.is_output:
            continue
        target = output_target(job, spec, array.name)
        if isinstance(target, FileOut):
            job.outputs[array.name] = _create(target, array, job, input_files)
        else:
            _check_target(target.into, array, job)
            job.into[array.name] = target.into


def output_target(job: ResolvedJob, spec: JobSpec, name: str) -> FileOut | ArenaOut:
    """Return where `spec` wants the output `name`. Raises UsageError for unknown outputs."""
    outputs = [array.name for array in job.specs if array.is_output]
    for requested in spec.outputs:
        if requested and requested not in outputs:
            raise UsageError(
                f"{job.workload.name} has no output {requested!r}; it has {', '.join(outputs)}"
            )
    if "" in spec.outputs and len(outputs) > 1:
        raise UsageError(f"{job.workload.name} has the outputs {', '.join(outputs)}: name them")
    return spec.outputs.get(name, spec.outputs.get("", ArenaOut()))


def writes_files(spec: JobSpec) -> bool:
    """Return whether any output goes to a file."""
    return any(isinstance(target, FileOut) for target in spec.outputs.values())


def _create(
    target: FileOut, array: ArraySpec, job: ResolvedJob, input_files: set[tuple[int, int]]
) -> OutputFile:
    return create_output(
        target.path,
        array_shape(array, job.load),
        np.dtype(array.dtype).str,
        force=target.force,
        inputs=input_files,
    )


def _check_target(into: ArenaRef | None, array: ArraySpec, job: ResolvedJob) -> None:
    if into is None:
        return
    expected = array_shape(array, job.load)
    if into.shape != expected or np.dtype(into.dtype) != np.dtype(array.dtype):
        raise DataError(
            f"out for {array.name} is {into.dtype} {format_shape(into.shape)},"
            f" the result is {array.dtype} {format_shape(expected)}"
        )
    for name, stored in job.inputs.items():
        if stored.key == into.segment and _overlap(stored, into):
            raise DataError(f"out for {array.name} overlaps the input {name}: use another array")


def _overlap(stored: StoredArray, into: ArenaRef) -> bool:
    return stored.offset < _end(into) and into.offset < _end(stored)


def _end(array: StoredArray | ArenaRef) -> int:
    return array.offset + math.prod(array.shape) * np.dtype(array.dtype).itemsize


def _file_identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
