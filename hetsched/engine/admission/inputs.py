"""Opens the inputs of a job and binds them to the workload's arrays."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from hetsched.engine.admission.resolved_job import (
    ResolvedJob,
    array_shape,
    file_key,
    format_shape,
)
from hetsched.errors import DataError, UsageError
from hetsched.job import ArenaRef, FileRef, Generated, InputRef, JobSpec
from hetsched.store.arrays.input_files import open_npy
from hetsched.transport.device_messages import StoredArray
from hetsched.workload import ArraySpec, Workload


def open_inputs(workload: Workload, spec: JobSpec, files: set[int]) -> dict[str, StoredArray]:
    """Open the inputs of `spec` and return them by array name, generated ones left out.

    Parameters
    ----------
    files : set of int
        The fds of opened files are added to it, also where an error follows.

    Raises
    ------
    UsageError
        An unknown input, or an unnamed one beside others.
    DataError, InputMissing
    """
    opened: dict[str, StoredArray] = {}
    for name, reference in spec.inputs.items():
        stored = _open_input(name, reference, files)
        if stored is not None:
            opened[name] = stored
    _check_names(workload, spec)
    return _resolve_unnamed(workload, opened)


def bind_input(job: ResolvedJob, array: ArraySpec, stored: StoredArray | None) -> None:
    """Add the input `array` to `job`; it is generated where nothing is stored.

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
            f" {array.dtype} chunk by chunk"
        )
    job.inputs[array.name] = stored


def dtype_name(dtype: str) -> str:
    """Return NumPy's name without the byte order: "<c8" -> "complex64"."""
    return np.dtype(dtype).name


def only_input(workload: Workload) -> str:
    """Return the input that an unnamed array stands for. Raises UsageError if there are more."""
    names = workload.inputs
    if len(names) != 1:
        raise UsageError(
            f"{workload.name} has the inputs {', '.join(names)}: name them, NAME=FILE"
        )
    return names[0]


def _open_input(name: str, reference: InputRef, files: set[int]) -> StoredArray | None:
    match reference:
        case ArenaRef():
            return StoredArray(
                array=name,
                key=reference.segment,
                shape=reference.shape,
                dtype=reference.dtype,
                offset=reference.offset,
            )
        case FileRef():
            fd, header = open_npy(reference.path)
            files.add(fd)
            return StoredArray(
                array=name,
                key=file_key(fd),
                shape=header.shape,
                dtype=header.dtype,
                offset=header.offset,
                order=header.order,
            )
        case Generated():
            return None


def _check_names(workload: Workload, spec: JobSpec) -> None:
    for name in spec.inputs:
        if name and name not in workload.inputs:
            raise UsageError(
                f"{workload.name} has no input {name!r}; it has {', '.join(workload.inputs)}"
            )


def _resolve_unnamed(
    workload: Workload, opened: Mapping[str, StoredArray]
) -> dict[str, StoredArray]:
    """Replace the name "" by that of the workload's only input."""
    if "" not in opened:
        return dict(opened)
    if len(opened) > 1:
        raise UsageError(f"{workload.name}: give every input its name, NAME=FILE")
    name = only_input(workload)
    return {name: msgspec.structs.replace(opened[""], array=name)}
