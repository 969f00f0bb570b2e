"""From what was asked for to what will be done: parameters, files, shapes, sizes, device names.

Runs in the planner's thread, because it opens files. Whatever the user got wrong is found here,
before the job is accepted.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from hetsched.device import DeviceInfo
from hetsched.device_kinds import group_names, kind_of_group
from hetsched.errors import DataError, Unavailable, UsageError
from hetsched.job import ArenaOut, ArenaRef, FileOut, FileRef, Generated, InputRef, JobSpec
from hetsched.store.array_files import Output, create_output, open_npy
from hetsched.transport.device_messages import StoredArray
from hetsched.units import format_bytes
from hetsched.workload import ArraySpec, Workload, find, locate


@dataclass
class Resolved:
    """A job that makes sense, with its files open. `close` gives them back.

    Attributes
    ----------
    inputs : mapping
        Array name -> StoredArray; `key` is the segment's id, or the `file_key` of a file.
    files : set of int
        The fds of input files.
    generate : tuple of ArraySpec
        Inputs that the device processes make.
    into : mapping
        Output name -> where in the arena the caller wants it, None: a segment of the job's own.
    """

    workload: Workload
    reference: str
    params: Any
    load: int
    specs: Sequence[ArraySpec]
    devices: tuple[str, ...]
    inputs: dict[str, StoredArray] = field(default_factory=dict)
    generate: list[ArraySpec] = field(default_factory=list)
    into: dict[str, ArenaRef | None] = field(default_factory=dict)
    outputs: dict[str, Output] = field(default_factory=dict)
    files: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    measure: dict[str, str] = field(default_factory=dict)
    """`JobSpec.measure`."""
    converted: bool = False
    """Some input is stored in another dtype or order than kernels want."""

    in_files: bool = False
    """Some array is, or was until they were closed, in a file."""

    @property
    def storage(self) -> str:
        """The `storage` of the job's model keys."""
        storage = "file" if self.in_files else "memory"
        return f"{storage}, converted" if self.converted else storage

    def publish(self) -> None:
        """Give the output files their names. Raises CantCreate, IOFailure."""
        for output in self.outputs.values():
            output.publish(sync=False)

    def close(self) -> None:
        """Close the input files and drop outputs that weren't published."""
        for output in self.outputs.values():
            output.discard()
        while self.files:
            os.close(self.files.pop())


def file_key(fd: int) -> int:
    """The key of an open file: negative, so that it is no segment's id."""
    return -1 - fd


def fd_of_key(key: int) -> int | None:
    """The fd behind a key; None for a segment."""
    return -1 - key if key < 0 else None


def whole(spec: ArraySpec, load: int, key: int, *, output: bool, offset: int = 0) -> StoredArray:
    """An array that is stored just as kernels want it."""
    return StoredArray(
        array=spec.name,
        key=key,
        shape=shape(spec, load),
        dtype=np.dtype(spec.dtype).str,
        offset=offset,
        output=output,
    )


def nbytes(spec: ArraySpec, load: int) -> int:
    """Bytes of the whole array, as kernels see it."""
    units = 1 if spec.role == "resident" else load
    return units * math.prod(spec.unit_shape) * np.dtype(spec.dtype).itemsize


def shape(spec: ArraySpec, load: int) -> tuple[int, ...]:
    return spec.unit_shape if spec.role == "resident" else (load, *spec.unit_shape)


def resolve(
    spec: JobSpec,
    known: Sequence[DeviceInfo],
    absent: Mapping[str, str],
    arena_limit: int,
    *,
    make: bool = True,
) -> Resolved:
    """Check `spec` against the workload, the files and this machine.

    Without `make` no output file is made, nor is looked whether it could be.

    Raises
    ------
    UsageError, DataError, InputMissing, Unavailable, CantCreate
    """
    workload = find(spec.workload)
    devices = choose_devices(spec.devices, known, absent)
    opened: dict[str, StoredArray] = {}
    files: set[int] = set()
    try:
        return _resolve(spec, workload, devices, arena_limit, opened, files, make)
    except BaseException:
        while files:
            os.close(files.pop())
        raise


def _resolve(
    spec: JobSpec,
    workload: Workload,
    devices: tuple[str, ...],
    arena_limit: int,
    opened: dict[str, StoredArray],
    files: set[int],
    make: bool,
) -> Resolved:
    for name, ref in spec.inputs.items():
        stored = _open(name, ref, files)
        if stored is not None:
            opened[name] = stored
    named = _named(workload, spec, opened)
    shapes = {name: (stored.shape, _plain(stored.dtype)) for name, stored in named.items()}
    params = workload.infer(spec.params, shapes)
    load = workload.load(params)
    specs = list(workload.arrays(params))
    job = Resolved(
        workload,
        locate(spec.workload),
        params,
        load,
        specs,
        devices,
        files=files,
        measure=spec.measure,
    )
    for array in specs:
        if array.is_input:
            _bind_input(job, array, named.get(array.name), shapes)
    _admit(job, spec, arena_limit)
    if not make:
        written = any(isinstance(target, FileOut) for target in spec.outputs.values())
        job.in_files = bool(job.files or written)
        return job
    try:
        _bind_outputs(job, spec, {_identity(fd) for fd in files})
    except BaseException:
        job.close()
        raise
    job.in_files = bool(job.files or job.outputs)
    return job


def _open(name: str, ref: InputRef, files: set[int]) -> StoredArray | None:
    match ref:
        case ArenaRef():
            return StoredArray(
                array=name, key=ref.segment, shape=ref.shape, dtype=ref.dtype, offset=ref.offset
            )
        case FileRef():
            fd, header = open_npy(ref.path)
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


def _named(
    workload: Workload, spec: JobSpec, opened: Mapping[str, StoredArray]
) -> dict[str, StoredArray]:
    """The opened inputs under their real names: "" stands for the first input of the workload."""
    for name in spec.inputs:
        if name and name not in workload.inputs:
            known = ", ".join(workload.inputs)
            raise UsageError(f"{workload.name} has no input {name!r}; it has {known}")
    if "" not in opened:
        return dict(opened)
    if len(opened) > 1:
        raise UsageError(f"{workload.name}: give every input its name, NAME=FILE")
    stored = opened[""]
    return {first_input(workload): msgspec.structs.replace(stored, array=first_input(workload))}


def first_input(workload: Workload) -> str:
    """The input that an unnamed array stands for; UsageError where there are several."""
    names = workload.inputs
    if len(names) != 1:
        raise UsageError(
            f"{workload.name} has the inputs {', '.join(names)}: name them, NAME=FILE"
        )
    return names[0]


def _plain(dtype: str) -> str:
    """NumPy's dtype name without the byte order: "<c8" -> "complex64"."""
    return np.dtype(dtype).name


def _bind_input(
    job: Resolved,
    array: ArraySpec,
    stored: StoredArray | None,
    shapes: Mapping[str, tuple[tuple[int, ...], str]],
) -> None:
    if stored is None:
        job.generate.append(array)
        return
    expected = shape(array, job.load)
    if stored.shape != expected:
        raise DataError(
            f"input {array.name} has shape {_form(stored.shape)},"
            f" {job.workload.name} needs {_form(expected)}"
        )
    if not np.can_cast(np.dtype(stored.dtype), np.dtype(array.dtype), "same_kind"):
        raise DataError(
            f"input {array.name} holds {_plain(stored.dtype)}, which is no {array.dtype};"
            " convert it, or ask for another --dtype"
        )
    if np.dtype(stored.dtype) != np.dtype(array.dtype) or stored.order != "C":
        job.converted = True
        job.notes.append(
            f"input {array.name}: {np.dtype(stored.dtype).str} in {stored.order} order is"
            f" converted to {array.dtype} chunk by chunk"
        )
    job.inputs[array.name] = stored


def _form(extent: Sequence[int]) -> str:
    return "x".join(map(str, extent)) or "()"


def _admit(job: Resolved, spec: JobSpec, limit: int) -> None:
    """Refuse what this machine can never hold, and say what it could."""
    generated = [array for array in job.specs if array in job.generate]
    stays = [
        array
        for array in job.specs
        if array.is_output and not isinstance(_output_of(job, spec, array.name), FileOut)
    ]
    needed = sum(nbytes(array, job.load) for array in [*generated, *stays])
    if needed <= limit:
        return
    fixed = sum(nbytes(a, job.load) for a in generated if a.role == "resident")
    per_unit = (needed - fixed) / job.load
    most = int((limit - fixed) // per_unit) if per_unit else 0
    largest = f"the largest load that fits is {most} units" if most >= 1 else "not one unit fits"
    raise DataError(
        f"{job.workload.name} with {job.load} units needs {format_bytes(needed)} of shared memory,"
        f" the limit here is {format_bytes(limit)}; {largest}; or stream it with --input, --output"
    )


def _output_of(job: Resolved, spec: JobSpec, name: str) -> Any:
    known = [array.name for array in job.specs if array.is_output]
    for given in spec.outputs:
        if given and given not in known:
            raise UsageError(f"{job.workload.name} has no output {given!r}; it has {known}")
    if "" in spec.outputs and len(known) > 1:
        raise UsageError(f"{job.workload.name} has the outputs {', '.join(known)}: name them")
    return spec.outputs.get(name, spec.outputs.get("", ArenaOut()))


def _bind_outputs(job: Resolved, spec: JobSpec, inputs: set[tuple[int, int]]) -> None:
    for array in job.specs:
        if not array.is_output:
            continue
        target = _output_of(job, spec, array.name)
        if isinstance(target, FileOut):
            output = create_output(
                target.path,
                shape(array, job.load),
                np.dtype(array.dtype).str,
                force=target.force,
                inputs=inputs,
            )
            job.outputs[array.name] = output
        else:
            job.into[array.name] = _checked_target(target.into, array, job)


def _checked_target(into: ArenaRef | None, array: ArraySpec, job: Resolved) -> ArenaRef | None:
    if into is None:
        return None
    expected = shape(array, job.load)
    if into.shape != expected or np.dtype(into.dtype) != np.dtype(array.dtype):
        raise DataError(
            f"out for {array.name} is {into.dtype} {_form(into.shape)},"
            f" the result is {array.dtype} {_form(expected)}"
        )
    for name, stored in job.inputs.items():
        if stored.key == into.segment and _overlap(stored, into):
            raise DataError(f"out for {array.name} overlaps the input {name}: give another array")
    return into


def _overlap(stored: StoredArray, into: ArenaRef) -> bool:
    end = stored.offset + math.prod(stored.shape) * np.dtype(stored.dtype).itemsize
    other = into.offset + math.prod(into.shape) * np.dtype(into.dtype).itemsize
    return stored.offset < other and into.offset < end


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


TEAM = "team"
"""The group of all teams; the group "cpu" has both teams and single cores."""


def choose_devices(
    asked: Sequence[str], known: Sequence[DeviceInfo], absent: Mapping[str, str]
) -> tuple[str, ...]:
    """The names of the devices that `asked` (names and groups; nothing: all) stands for.

    Raises
    ------
    UsageError
        No such name, with the nearest. Unavailable: a known kind that this machine lacks.
    """
    if not asked:
        return tuple(info.name for info in known)
    chosen: dict[str, None] = {}
    for word in asked:
        kind = kind_of_group(word)
        members = [info.name for info in known if word in (info.name, info.kind)]
        members += [info.name for info in known if kind is not None and info.kind == kind.name]
        members += [info.name for info in known if info.members and word == TEAM]
        if not members:
            _no_device(word, known, absent)
        chosen.update(dict.fromkeys(members))
    return tuple(info.name for info in known if info.name in chosen)


def _no_device(word: str, known: Sequence[DeviceInfo], absent: Mapping[str, str]) -> None:
    there = ", ".join(info.name for info in known)
    group = word.rstrip("0123456789")
    kind = kind_of_group(group)
    reason = absent.get(word) or absent.get(group)
    if reason or (kind is not None and kind.can_be_missing):
        raise Unavailable(
            f"device {word} is not available: {reason or 'none found'}; devices here: {there}"
        )
    names = [info.name for info in known]
    groups = [*group_names(), *([TEAM] if any(info.members for info in known) else [])]
    match = difflib.get_close_matches(word, [*names, *groups], n=1)
    hint = f"did you mean {match[0]}? " if match else ""
    raise UsageError(f"no device {word!r}; {hint}devices here: {there}")
