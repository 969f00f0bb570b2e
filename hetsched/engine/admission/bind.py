"""Binds a declared job to its inputs, outputs and the devices of this machine.

Opening files may block, so it is done in a thread; the rest neither blocks nor calls plug-ins.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from hetsched import __version__
from hetsched.device import DeviceInfo
from hetsched.device_kinds import group_names, kind_of_group
from hetsched.engine.admission.declare import (
    Declaration,
    IterativeDeclaration,
    Shapes,
    has_files,
    not_saving_note,
)
from hetsched.engine.admission.files import InputOpener
from hetsched.engine.admission.resolved_job import ResolvedJob, array_bytes, format_shape
from hetsched.errors import DataError, Unavailable, UsageError
from hetsched.job import (
    ArenaOut,
    ArenaRef,
    FileOut,
    FileRef,
    Generated,
    InputRef,
    JobSpec,
    iteration_options,
)
from hetsched.sparse.parts import PARTS
from hetsched.store.finished_parts import common
from hetsched.store.matrix_file import is_matrix_file
from hetsched.store.output_files import OutputClaim, check_output, create_output
from hetsched.transport.device_messages import StoredArray
from hetsched.units import closest_name, format_bytes, quoted
from hetsched.workload import ArraySpec, BaseWorkload, Iterative, SparseMatrix
from hetsched.workload.composites import input_names

FileIds = set[tuple[int, int]]
"""(st_dev, st_ino) of files."""
BindFile = Callable[[ArraySpec, FileOut, FileIds], None]
"""bind_file(array, target, inputs): the output must not be one of the inputs."""
TEAM_GROUP = "team"
"""The group of all teams; the group "cpu" has both teams and single cores."""


@dataclass(frozen=True)
class MachineLimits:
    """What a job may use of this machine.

    Attributes
    ----------
    infos : sequence of DeviceInfo
        The devices.
    absent : mapping
        Unusable device or kind -> reason.
    arena_limit : int, bytes
        Of all shared memory.
    """

    infos: Sequence[DeviceInfo]
    absent: Mapping[str, str]
    arena_limit: int


def bind(
    spec: JobSpec,
    declaration: Declaration,
    stored: Mapping[str, StoredArray],
    machine: MachineLimits,
    opener: InputOpener,
) -> ResolvedJob:
    """Bind devices and inputs. Doesn't block, nor call code of plug-ins."""
    _check_kind(spec, declaration)
    job = ResolvedJob(
        declaration.workload,
        declaration.reference,
        declaration.params,
        declaration.load,
        declaration.specs,
        select_devices(spec.devices, machine.infos, machine.absent),
        speed_key=declaration.speed_key,
        encoded_params=declaration.encoded_params,
        source=declaration.source,
        files=opener.files,
        loaded=opener.loaded,
        measure=spec.measure,
        in_files=has_files(spec),
        iterative=declaration.iterative,
    )
    _check_memory_limit(spec, job, machine)
    for array in job.specs:
        if array.is_input:
            bind_input(job, array, stored.get(array.name))
    if job.iterative is not None:
        job.iterative = _without_needless_saves(job, job.iterative, spec, machine)
    note_generated(job)
    _check_shared_memory(job, spec, machine.arena_limit)
    return job


def _check_kind(spec: JobSpec, declaration: Declaration) -> None:
    """Raise UsageError for options that this kind of workload doesn't have."""
    options = iteration_options(spec)
    if declaration.iterative is None and options:
        names = ", ".join(f"--{option}" for option in options)
        raise UsageError(
            f"{declaration.workload.name} has no iterations, so {names} can't be used with it: it"
            " is computed in one pass"
        )
    if declaration.iterative is not None and spec.measure:
        raise UsageError(
            f"{declaration.workload.name} is iterative: its devices are measured while it runs,"
            " not by explicit measurements"
        )


def _without_needless_saves(
    job: ResolvedJob, declaration: IterativeDeclaration, spec: JobSpec, machine: MachineLimits
) -> IterativeDeclaration:
    """Save nothing without checkpoints, or devices that keep rows in memory of their own.

    For these only if it may fit: they can store their rows after each iteration.
    """
    if spec.checkpoint:
        return declaration
    has_memory = any(
        info.name in job.devices and info.link and not info.is_modelled for info in machine.infos
    )
    fits = has_memory and _shared_bytes(job, spec) <= machine.arena_limit
    if has_memory and not fits:
        nbytes = sum(array.nbytes for array in declaration.saved_arrays())
        job.notes.append(not_saving_note(nbytes))
    return declaration if fits else replace(declaration, saved={})


def _check_memory_limit(spec: JobSpec, job: ResolvedJob, machine: MachineLimits) -> None:
    """Raise UsageError for a limit of device memory that no device of the job has."""
    has_memory = any(info.link for info in machine.infos if info.name in job.devices)
    if spec.memory_limit is not None and not has_memory:
        raise UsageError(
            f"memory_limit: {format_bytes(spec.memory_limit)}, but none of the job's devices has"
            f" memory of its own ({', '.join(job.devices)}); leave it out"
        )


# ---- devices


def select_devices(
    requested: Sequence[str], infos: Sequence[DeviceInfo], absent: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the devices selected by the `requested` names and groups.

    Parameters
    ----------
    requested : sequence of str
        Empty: all devices.
    infos : sequence of DeviceInfo
        The devices of this machine.
    absent : mapping
        Unusable device or kind -> reason.
    """
    if not requested:
        return tuple(info.name for info in infos)
    selected: set[str] = set()
    for word in requested:
        members = {info.name for info in infos if _matches(word, info)}
        if not members:
            raise _unknown_device(word, infos, absent)
        selected |= members
    return tuple(info.name for info in infos if info.name in selected)


def _matches(word: str, info: DeviceInfo) -> bool:
    kind = kind_of_group(word)
    if word in (info.name, info.kind) or (kind is not None and info.kind == kind.name):
        return True
    return word == TEAM_GROUP and bool(info.members)


def _unknown_device(
    word: str, infos: Sequence[DeviceInfo], absent: Mapping[str, str]
) -> UsageError | Unavailable:
    names = [info.name for info in infos]
    available = ", ".join(names)
    group = word.rstrip("0123456789")
    kind = kind_of_group(group)
    reason = absent.get(word) or absent.get(group)
    if reason or (kind is not None and kind.can_be_missing):
        return Unavailable(
            f"device {word} is not available: {reason or 'none found'}; devices here: {available}"
        )
    groups = [*group_names(), *([TEAM_GROUP] if any(info.members for info in infos) else [])]
    match = closest_name(word, [*names, *(group for group in groups if group != word)])
    hint = f"did you mean {match}? " if match else ""
    return UsageError(f"no device {quoted(word)}; {hint}devices here: {available}")


# ---- inputs


def open_inputs(
    workload: BaseWorkload, spec: JobSpec, opener: InputOpener
) -> dict[str, StoredArray]:
    """Open the inputs of `spec` and return them by array name, without generated ones.

    The caller closes `opener`, also if an error follows.
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


def shapes_of(stored: Mapping[str, StoredArray]) -> Shapes:
    """Return the shapes and dtypes of inputs, for plug-ins."""
    return {name: (array.shape, dtype_name(array.dtype)) for name, array in stored.items()}


def bind_input(job: ResolvedJob, array: ArraySpec, stored: StoredArray | None) -> None:
    """Add the input `array` to `job`; it is generated if `stored` is None."""
    if stored is None:
        job.generate.append(array)
        return
    expected = array.shape(job.load)
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


def composite_of(workload: BaseWorkload, name: str) -> SparseMatrix | None:
    """Return the composite that the input `name` is; "": the only one that is needed."""
    wanted = name or workload.only_input
    return next((c for c in workload.composites if c.name == wanted), None)


def open_composite(
    composite: SparseMatrix, name: str, reference: InputRef, opener: InputOpener
) -> Mapping[str, StoredArray]:
    """Open the input `name` and return its arrays; none if it is generated."""
    if isinstance(reference, Generated):
        return {}
    if isinstance(reference, FileRef):
        arrays = opener.open_matrix(name, reference.path, composite)
        return {array.array: array for array in arrays}
    raise DataError(
        f"input {composite.name} is a sparse matrix, not one array: give a SciPy sparse array,"
        f" such as scipy.sparse.csr_array({composite.name})"
    )


def check_composites(workload: BaseWorkload, opened: Mapping[str, StoredArray]) -> None:
    """Check that the arrays of each composite are complete and have its shapes."""
    for composite in workload.composites:
        shapes = {
            name: (opened[name].shape, np.dtype(opened[name].dtype).name)
            for name in composite.arrays
            if name in opened
        }
        composite.check(shapes)


# ---- outputs


def bind_outputs(job: ResolvedJob, spec: JobSpec, bind_file: BindFile) -> None:
    """Bind output files by `bind_file`, and check the caller's arena arrays for results."""
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
    """

    def create(array: ArraySpec, target: FileOut, inputs: FileIds) -> None:
        job.outputs[array.name] = create_output(
            target.path,
            array.shape(job.load),
            np.dtype(array.dtype).str,
            force=target.force,
            inputs=inputs,
            token=token and f"{token}-{array.name}",
            identity=job.parts_identity,
        )

    if token and job.iterative is None:
        job.parts_identity = _parts_identity(job, spec)
    bind_outputs(job, spec, create)
    if job.into:  # what is in memory is lost in a crash
        job.parts_identity = ""
        return
    job.finished = common([output.finished for output in job.outputs.values()])
    if job.finished == ((0, job.load),):  # a unit remains: a plan without any is none
        job.finished = ((0, job.load - 1),) if job.load > 1 else ()


def _parts_identity(job: ResolvedJob, spec: JobSpec) -> str:
    """Return what identifies the results of a job: its request, code and input files."""
    stamps = []
    for fd in job.files:
        status = os.fstat(fd)
        stamps.append((status.st_ino, status.st_size, status.st_mtime_ns))
    code = (__version__, spec.workload, job.source)
    raw = msgspec.msgpack.encode((code, spec.params, spec.seed, job.load, sorted(stamps)))
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def check_outputs(job: ResolvedJob, spec: JobSpec) -> tuple[OutputClaim, ...]:
    """Check that the outputs could be created, but for their space; return what they will need."""
    claims: dict[str, OutputClaim] = {}

    def check(array: ArraySpec, target: FileOut, inputs: FileIds) -> None:
        shape, dtype = array.shape(job.load), np.dtype(array.dtype).str
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
    expected = array.shape(job.load)
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


# ---- shared memory


def _check_shared_memory(job: ResolvedJob, spec: JobSpec, limit: int) -> None:
    """Check that generated inputs and results in memory fit into `limit` bytes."""
    needed = _shared_bytes(job, spec)
    if needed <= limit:
        return
    if job.iterative is not None:
        raise DataError(
            f"{job.workload.name} with {job.load} rows needs {format_bytes(needed)} of shared"
            f" memory for its inputs, outputs and state, the limit here is {format_bytes(limit)}"
            " (arena.limit in the config)"
        )
    max_load = _max_load(job, needed, limit)
    largest = f"the largest load that fits is {max_load} units" if max_load else "no unit fits"
    raise DataError(
        f"{job.workload.name} with {job.load} units needs {format_bytes(needed)} of shared memory,"
        f" the limit here is {format_bytes(limit)}; {largest}; or stream it with --input, --output"
    )


def _shared_bytes(job: ResolvedJob, spec: JobSpec) -> int:
    """Return the bytes of the segments that the job allocates.

    An iterative job keeps everything in memory, so also what it reads from files or writes there.
    """
    outputs = [array for array in job.specs if array.is_output]
    if job.iterative is not None:
        in_state = job.iterative.results
        outputs = [
            array
            for array in outputs
            if array.name not in in_state or output_target(job, spec, array.name) != ArenaOut()
        ]
        arrays = [*job.generate, *outputs, *(a for a in job.specs if a.name in job.copied_inputs)]
        work = job.iterative.work_arrays(job.load, len(job.devices))
        return sum(array_bytes(a, job.load) for a in arrays) + sum(each.nbytes for each in work)
    results = [
        array for array in outputs if not isinstance(output_target(job, spec, array.name), FileOut)
    ]
    return sum(array_bytes(array, job.load) for array in [*job.generate, *results])


def _max_load(job: ResolvedJob, needed: int, limit: int) -> int:
    """Return the largest load that fits; 0 if none does."""
    fixed = sum(array_bytes(a, job.load) for a in job.generate if a.role == "resident")
    unit_bytes = (needed - fixed) / job.load
    return max(0, int((limit - fixed) // unit_bytes)) if unit_bytes else 0
