"""Binding of a workload's arrays to the files and segments of a job request."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from hetsched.engine.admission.composite_inputs import (
    check_composites,
    composite_of,
    open_composite,
)
from hetsched.engine.admission.input_opener import InputOpener
from hetsched.engine.admission.resolved_job import ResolvedJob, array_shape, format_shape
from hetsched.errors import DataError, UsageError
from hetsched.job import (
    ArenaOut,
    ArenaRef,
    FileOut,
    FileRef,
    Generated,
    InputRef,
    JobSpec,
)
from hetsched.sparse.parts import PARTS
from hetsched.store.arrays.output_files import OutputClaim, check_output, create_output
from hetsched.store.matrices.matrix_file import is_matrix_file
from hetsched.transport.device_messages import StoredArray
from hetsched.workload import ArraySpec, BaseWorkload, Iterative
from hetsched.workload.composites import input_names

FileIds = set[tuple[int, int]]
"""(st_dev, st_ino) of files."""
BindFile = Callable[[ArraySpec, FileOut, FileIds], None]
"""bind_file(array, target, inputs): the output must not be one of the inputs."""


def open_inputs(
    workload: BaseWorkload, spec: JobSpec, opener: InputOpener
) -> dict[str, StoredArray]:
    """Open the inputs of `spec` and return them by array name, without generated ones.

    The caller closes `opener`, also if an error follows.

    Raises
    ------
    UsageError
        An unknown input, or an unnamed one together with others.
    DataError, InputMissing
    """
    opened: dict[str, StoredArray] = {}
    for name, reference in spec.inputs.items():
        composite = composite_of(workload, name)
        if composite is not None:
            for part in composite.arrays:
                if part in spec.inputs:
                    raise UsageError(f"input {part} is part of {name}: give one of the two")
            opened |= open_composite(composite, name, reference, opener)
        elif (stored := _open_input(workload, name, reference, opener)) is not None:
            opened[name] = stored
    _check_names(workload, spec)
    opened = _resolve_unnamed(workload, opened)
    check_composites(workload, opened)
    return opened


def bind_input(job: ResolvedJob, array: ArraySpec, stored: StoredArray | None) -> None:
    """Add the input `array` to `job`; it is generated if `stored` is None.

    Raises
    ------
    DataError
        Wrong shape, or a dtype that can't be converted.
    """
    if stored is None:
        job.generate.append(array)
        return
    expected = array_shape(array, job.load)
    if stored.shape != expected:
        raise DataError(
            f"input {array.name} has shape {format_shape(stored.shape)},"
            f" {job.workload.name} needs {format_shape(expected)}"
        )
    stored_dtype, kernel_dtype = np.dtype(stored.dtype), np.dtype(array.dtype)
    if not np.can_cast(stored_dtype, kernel_dtype, "same_kind"):
        raise DataError(
            f"input {array.name} holds {stored_dtype.name}, which can't be converted to"
            f" {array.dtype}; convert it, or use another --dtype"
        )
    if stored_dtype != kernel_dtype or stored.order != "C":
        job.converted = True
        job.notes.append(
            f"input {array.name}: {stored_dtype.str} in {stored.order} order is converted to"
            f" {array.dtype} {'once' if job.iterative else 'chunk by chunk'}"
        )
    job.inputs[array.name] = stored


def note_generated(job: ResolvedJob) -> None:
    """Add a note if some inputs of `job` are given and others are generated."""
    if job.inputs and job.generate:
        arrays = [array.name for array in job.generate]
        names = ", ".join(input_names(arrays, job.workload.composites))
        job.notes.append(f"input {names}: not given, so generated")


def dtype_name(dtype: str) -> str:
    """Return NumPy's name without the byte order: "<c8" -> "complex64"."""
    return np.dtype(dtype).name


def only_input(workload: BaseWorkload) -> str:
    """Return the only input that the workload needs. Raises UsageError if there are several."""
    if workload.only_input is None:
        names = ", ".join(workload.input_names)
        raise UsageError(f"{workload.name} has the inputs {names}: name them, NAME=FILE")
    return workload.only_input


def _open_input(
    workload: BaseWorkload, name: str, reference: InputRef, opener: InputOpener
) -> StoredArray | None:
    match reference:
        case ArenaRef():
            return StoredArray(
                array=name,
                key=reference.segment,
                shape=reference.shape,
                dtype=reference.dtype,
                offset=reference.offset,
            )
        case FileRef(path=path):
            if isinstance(workload, Iterative) and is_matrix_file(path):
                return opener.open_matrix(name, path, None)[0]
            return opener.open(name, path)
        case Generated():
            return None


def _check_names(workload: BaseWorkload, spec: JobSpec) -> None:
    for name in spec.inputs:
        if name and name not in (*workload.inputs, *workload.input_names):
            raise _unknown_input(workload, name)


def _unknown_input(workload: BaseWorkload, name: str) -> Exception:
    owner, _, part = name.rpartition(".")
    if part in PARTS and owner in workload.inputs:
        return DataError(
            f"{workload.name} takes {owner} as a dense array, not as a sparse matrix: give"
            f" {owner}.toarray()"
        )
    names = ", ".join(workload.input_names)
    return UsageError(f"{workload.name} has no input {name!r}; it has {names}")


def _resolve_unnamed(
    workload: BaseWorkload, opened: Mapping[str, StoredArray]
) -> dict[str, StoredArray]:
    """Replace the name "" by the name of the only input that the workload needs."""
    if "" not in opened:
        return dict(opened)
    if len(opened) > 1:
        raise UsageError(f"{workload.name}: give every input its name, NAME=FILE")
    name = only_input(workload)
    return {name: msgspec.structs.replace(opened[""], array=name)}


def bind_outputs(job: ResolvedJob, spec: JobSpec, bind_file: BindFile) -> None:
    """Bind output files by `bind_file`, and check the caller's arena arrays for results.

    Raises
    ------
    UsageError
        An unknown output.
    DataError
        A caller's array has the wrong shape or dtype, or overlaps an input.
    CantCreate
    """
    input_files = {_file_identity(fd) for fd in job.files}
    for array in job.specs:
        if not array.is_output:
            continue
        target = output_target(job, spec, array.name)
        if isinstance(target, FileOut):
            bind_file(array, target, input_files)
        else:
            _check_target(target.into, array, job)
            _check_overlaps(target.into, array, job)
            job.into[array.name] = target.into


def output_target(job: ResolvedJob, spec: JobSpec, name: str) -> FileOut | ArenaOut:
    """Return the target of output `name` in `spec`. Raises UsageError for unknown outputs."""
    outputs = [array.name for array in job.specs if array.is_output]
    for requested in spec.outputs:
        if requested and requested not in outputs:
            raise UsageError(
                f"{job.workload.name} has no output {requested!r}; it has {', '.join(outputs)}"
            )
    unnamed = spec.outputs.get("", ArenaOut())
    if "" in spec.outputs and len(outputs) > 1:
        optional = job.workload.optional_outputs if isinstance(unnamed, FileOut) else ()
        needed = [output for output in outputs if output not in optional]
        if len(needed) > 1 or len(spec.outputs) > 1:
            names = ", ".join(outputs)
            raise UsageError(f"{job.workload.name} has the outputs {names}: name them")
        return unnamed if name in needed else ArenaOut()
    return spec.outputs.get(name, unnamed)


def create_outputs(job: ResolvedJob, spec: JobSpec, token: str = "") -> None:
    """Create output files, with all their space, and check the caller's arrays for results.

    `token`: unique to the job; a file of an earlier attempt with the same token is removed.

    Raises
    ------
    UsageError, DataError, CantCreate
    """

    def create(array: ArraySpec, target: FileOut, inputs: FileIds) -> None:
        job.outputs[array.name] = create_output(
            target.path,
            array_shape(array, job.load),
            np.dtype(array.dtype).str,
            force=target.force,
            inputs=inputs,
            token=token and f"{token}-{array.name}",
        )

    bind_outputs(job, spec, create)


def check_outputs(job: ResolvedJob, spec: JobSpec) -> tuple[OutputClaim, ...]:
    """Check that the outputs could be created, but for their space; return what they will need.

    Raises
    ------
    UsageError, DataError, CantCreate
    """
    claims: dict[str, OutputClaim] = {}

    def check(array: ArraySpec, target: FileOut, inputs: FileIds) -> None:
        shape, dtype = array_shape(array, job.load), np.dtype(array.dtype).str
        claim = check_output(target.path, shape, dtype, force=target.force, inputs=inputs)
        for name, other in claims.items():
            if other.path == claim.path:
                raise UsageError(
                    f"the outputs {name} and {array.name} are the same file, {target.path};"
                    " give each another name"
                )
        claims[array.name] = claim

    bind_outputs(job, spec, check)
    return tuple(claims.values())


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


def _check_overlaps(into: ArenaRef | None, array: ArraySpec, job: ResolvedJob) -> None:
    """Raise UsageError if `into` overlaps the array of an output that was bound before."""
    for name, other in job.into.items():
        if into is None or other is None or into.segment != other.segment:
            continue
        if name != array.name and _overlap(other, into):
            raise UsageError(f"out for {name} and {array.name} overlap: use separate arrays")


def _overlap(stored: StoredArray | ArenaRef, into: ArenaRef) -> bool:
    return stored.offset < _end(into) and into.offset < _end(stored)


def _end(array: StoredArray | ArenaRef) -> int:
    return array.offset + math.prod(array.shape) * np.dtype(array.dtype).itemsize


def _file_identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino
