"""Binds a declared job to its inputs, its outputs and the devices of this machine."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from hetsched import __version__
from hetsched.device import DeviceInfo
from hetsched.device_kinds import group_names, kind_of_group
from hetsched.engine.admission.files import InputOpener, has_files
from hetsched.engine.admission.resolved_job import (
    Declaration,
    ResolvedJob,
    array_bytes,
    format_shape,
    not_saving_note,
)
from hetsched.errors import DataError, Unavailable, UsageError
from hetsched.job import ArenaOut, ArenaRef, FileOut, JobSpec, iteration_options
from hetsched.sparse import input_names
from hetsched.store.output_files import OutputClaim, check_output, common, create_output
from hetsched.transport.device_messages import StoredArray
from hetsched.units import closest_name, format_bytes, quoted
from hetsched.workload import ArraySpec

TEAM_GROUP = "team"
"""The group of all teams; the group "cpu" has both teams and single cores."""

OutputTargets = Mapping[str, FileOut | ArenaOut]
"""Output -> where its result goes."""


@dataclass(frozen=True)
class MachineLimits:
    """What a job may use of this machine."""

    infos: Sequence[DeviceInfo]
    absent: Mapping[str, str]  # Unusable device or kind -> why
    arena_limit: int  # Bytes of all shared memory


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
        **vars(declaration),
        devices=select_devices(spec.devices, machine.infos, machine.absent),
        files=opener.files,
        loaded=opener.loaded,
        measure=spec.measure,
        in_files=has_files(spec),
    )
    infos = [info for info in machine.infos if info.name in job.devices]
    if spec.memory_limit is not None and not any(info.link for info in infos):
        raise UsageError(
            f"memory_limit: {format_bytes(spec.memory_limit)}, but none of the job's devices has"
            f" memory of its own ({', '.join(job.devices)}); leave it out"
        )
    for array in job.specs:
        if array.is_input:
            _bind_input(job, array, stored.get(array.name))
    targets = output_targets(job, spec)
    if job.iterative is not None and not spec.checkpoint:
        _drop_needless_saves(job, targets, infos, machine.arena_limit)
    if job.inputs and job.generate:
        generated = [array.name for array in job.generate]
        names = ", ".join(input_names(generated, job.workload.composites))
        job.notes.append(f"input {names}: not given, so generated")
    for array in job.specs:
        if array.is_output:
            _bind_output(job, array, targets[array.name])
    _check_shared_memory(job, targets, machine.arena_limit)
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


def _drop_needless_saves(
    job: ResolvedJob, targets: OutputTargets, infos: Sequence[DeviceInfo], limit: int
) -> None:
    """Save nothing, unless a device keeps rows in memory of its own and there may be room.

    Without room these can store their rows after each iteration.
    """
    assert job.iterative is not None
    has_memory = any(info.link and not info.is_modelled for info in infos)
    fits = has_memory and _shared_bytes(job, targets) <= limit
    if has_memory and not fits:
        nbytes = sum(array.nbytes for array in job.iterative.saved_arrays())
        job.notes.append(not_saving_note(nbytes))
    if not fits:
        job.iterative = replace(job.iterative, saved={})


def _bind_input(job: ResolvedJob, array: ArraySpec, stored: StoredArray | None) -> None:
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


# ---- devices


def select_devices(
    requested: Sequence[str], infos: Sequence[DeviceInfo], absent: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the devices selected by the `requested` names and groups; without any: all."""
    if not requested:
        return tuple([info.name for info in infos])
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


# ---- outputs


def check_outputs(job: ResolvedJob, spec: JobSpec) -> tuple[OutputClaim, ...]:
    """Check that the outputs could be created, but for their space; return what they will need."""
    claims: dict[str, OutputClaim] = {}
    inputs = _file_identities(job)
    for array, target in _output_files(job, spec):
        shape, dtype = array.shape(job.load), np.dtype(array.dtype).str
        claim = check_output(target.path, shape, dtype, force=target.force, inputs=inputs)
        for name, other in claims.items():
            if other.path == claim.path:
                raise UsageError(
                    f"the outputs {name} and {array.name} are the same file, {target.path};"
                    " give each another name"
                )
        claims[array.name] = claim
    return tuple(claims.values())


def create_outputs(job: ResolvedJob, spec: JobSpec, token: str = "") -> None:
    """Create output files, with all their space.

    `token`: unique to the job; a file of an earlier attempt with the same token is removed.
    """
    inputs = _file_identities(job)
    if token and job.iterative is None and not job.into:  # what is in memory is lost in a crash
        job.parts_identity = _parts_identity(job, spec)
    for array, target in _output_files(job, spec):
        job.outputs[array.name] = create_output(
            target.path,
            array.shape(job.load),
            np.dtype(array.dtype).str,
            force=target.force,
            inputs=inputs,
            token=token and f"{token}-{array.name}",
            identity=job.parts_identity,
        )
    job.finished = common([output.finished for output in job.outputs.values()])
    if job.finished == ((0, job.load),):  # a unit remains: a plan without any is none
        job.finished = ((0, job.load - 1),) if job.load > 1 else ()


def _output_files(job: ResolvedJob, spec: JobSpec) -> list[tuple[ArraySpec, FileOut]]:
    targets = output_targets(job, spec)
    return [
        (array, target)
        for array in job.specs
        if array.is_output and isinstance(target := targets[array.name], FileOut)
    ]


def output_targets(job: Declaration, spec: JobSpec) -> OutputTargets:
    """Return the target of each output of the job, in order."""
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
        return {name: unnamed if name in needed else ArenaOut() for name in outputs}
    return {name: spec.outputs.get(name, unnamed) for name in outputs}


def _bind_output(job: ResolvedJob, array: ArraySpec, target: FileOut | ArenaOut) -> None:
    """Bind the output `array`, unless it becomes a file; check the caller's array for it."""
    if isinstance(target, FileOut):
        return
    into = target.into
    if into is None:
        job.into[array.name] = None
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
    for name, other in job.into.items():
        if other is not None and other.segment == into.segment and _overlap(other, into):
            raise UsageError(f"out for {name} and {array.name} overlap: use separate arrays")
    job.into[array.name] = into


def _overlap(one: StoredArray | ArenaRef, other: ArenaRef) -> bool:
    return one.offset < _end(other) and other.offset < _end(one)


def _end(array: StoredArray | ArenaRef) -> int:
    return array.offset + math.prod(array.shape) * np.dtype(array.dtype).itemsize


def _file_identities(job: ResolvedJob) -> set[tuple[int, int]]:
    """Return (st_dev, st_ino) of the inputs: no output may be one of them."""
    found = map(os.fstat, job.files)
    return {(status.st_dev, status.st_ino) for status in found}


def _parts_identity(job: ResolvedJob, spec: JobSpec) -> str:
    """Return what identifies the results of a job: its request, code and input files."""
    found = map(os.fstat, job.files)
    stamps = sorted((status.st_ino, status.st_size, status.st_mtime_ns) for status in found)
    code = (__version__, spec.workload, job.source)
    raw = msgspec.msgpack.encode((code, spec.params, spec.seed, job.load, stamps))
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


# ---- shared memory


def _check_shared_memory(job: ResolvedJob, targets: OutputTargets, limit: int) -> None:
    """Check that generated inputs and results in memory fit into `limit` bytes."""
    needed = _shared_bytes(job, targets)
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


def _shared_bytes(job: ResolvedJob, targets: OutputTargets) -> int:
    """Return the bytes of the segments that the job allocates.

    An iterative job keeps everything in memory, so also what it reads from files or writes there.
    """
    outputs = [array for array in job.specs if array.is_output]
    if job.iterative is None:
        results = [a for a in outputs if not isinstance(targets[a.name], FileOut)]
        return sum(array_bytes(array, job.load) for array in [*job.generate, *results])
    in_state = {name for name in job.iterative.results if targets[name] == ArenaOut()}
    results = [array for array in outputs if array.name not in in_state]
    copied = [array for array in job.specs if array.name in job.copied_inputs]
    work = job.iterative.work_arrays(job.load, len(job.devices))
    arrays = [*job.generate, *results, *copied]
    return sum(array_bytes(a, job.load) for a in arrays) + sum(each.nbytes for each in work)


def _max_load(job: ResolvedJob, needed: int, limit: int) -> int:
    """Return the largest load that fits; 0 if none does."""
    fixed = sum(array_bytes(a, job.load) for a in job.generate if a.role == "resident")
    unit_bytes = (needed - fixed) / job.load
    return max(0, int((limit - fixed) // unit_bytes)) if unit_bytes else 0
