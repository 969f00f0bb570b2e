"""Binds a declared job to its inputs, its outputs and the devices of this machine."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from hetsched import __version__, errors
from hetsched.device import DeviceInfo
from hetsched.device_kinds import group_names, kind_of_group
from hetsched.engine.admission.resolved_job import (
    Declaration,
    ResolvedJob,
    array_bytes,
    not_saving_note,
)
from hetsched.job import ArenaRef, FileOut, JobSpec, has_files
from hetsched.sparse import input_names
from hetsched.store import output_files
from hetsched.transport.device_messages import StoredArray
from hetsched.units import closest_name, format_bytes, quoted
from hetsched.workload import ArraySpec

TEAM_GROUP = "team"
"""The group of all teams; the group "cpu" has both teams and single cores."""
ITERATION_OPTIONS = {
    "balance": "auto",
    "warm_up": "",
    "checkpoint": "",
    "every": None,
    "resume": "",
}
"""Options that only iterative jobs have -> unset."""


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
) -> ResolvedJob:
    """Bind devices and inputs. Doesn't block, nor call code of plug-ins."""
    _check_kind(spec, declaration)
    job = ResolvedJob(
        **vars(declaration),
        declaration=declaration,
        devices=select_devices(spec.devices, machine.infos, machine.absent),
        measure=spec.measure,
        in_files=has_files(spec),
    )
    if spec.memory_limit is not None and not any(info.link for info in _infos(job, machine)):
        raise errors.UsageError(
            f"memory_limit: {format_bytes(spec.memory_limit)}, but none of the job's devices has"
            f" memory of its own ({', '.join(job.devices)}); leave it out"
        )
    for array in job.specs:
        if array.is_input:
            _bind_input(job, array, stored.get(array.name))
    _bind_outputs(job, spec)
    if job.iterative is not None and not spec.checkpoint:
        _drop_needless_saves(job, machine)
    if job.inputs and job.generate:
        generated = [array.name for array in job.generate]
        names = ", ".join(input_names(generated, job.workload.composites))
        job.notes.append(f"input {names}: not given, so generated")
    _check_shared_memory(job, machine.arena_limit)
    return job


def _check_kind(spec: JobSpec, declaration: Declaration) -> None:
    """Raise UsageError for options that this kind of workload doesn't have."""
    if declaration.iterative is not None:
        if spec.measure:
            raise errors.UsageError(
                f"{declaration.workload.name} is iterative: its devices are measured while it"
                " runs, not by explicit measurements"
            )
        return
    options = [name for name, unset in ITERATION_OPTIONS.items() if getattr(spec, name) != unset]
    if options:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise errors.UsageError(
            f"{declaration.workload.name} has no iterations, so {names} can't be used with it: it"
            " is computed in one pass"
        )


def _infos(job: ResolvedJob, machine: MachineLimits) -> list[DeviceInfo]:
    return [info for info in machine.infos if info.name in job.devices]


def _drop_needless_saves(job: ResolvedJob, machine: MachineLimits) -> None:
    """Save nothing, unless a device keeps rows in memory of its own and there may be room.

    Without room these can store their rows after each iteration.
    """
    assert job.iterative is not None
    if any(info.link and not info.is_modelled for info in _infos(job, machine)):
        if _shared_bytes(job) <= machine.arena_limit:
            return
        job.notes.append(not_saving_note(job.iterative.saved))
    job.iterative = replace(job.iterative, saved=())


def _bind_input(job: ResolvedJob, array: ArraySpec, stored: StoredArray | None) -> None:
    """Add the input `array` to `job`; it is generated if `stored` is None."""
    if stored is None:
        job.generate.append(array)
        return
    expected = array.shape(job.load)
    if stored.shape != expected:
        raise errors.DataError(
            f"input {array.name} has shape {_extent(stored.shape)},"
            f" {job.workload.name} needs {_extent(expected)}"
        )
    stored_dtype, kernel_dtype = np.dtype(stored.dtype), np.dtype(array.dtype)
    if not np.can_cast(stored_dtype, kernel_dtype, "same_kind"):
        raise errors.DataError(
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
) -> errors.UsageError | errors.Unavailable:
    names = [info.name for info in infos]
    available = ", ".join(names)
    group = word.rstrip("0123456789")
    kind = kind_of_group(group)
    reason = absent.get(word) or absent.get(group)
    if reason or (kind is not None and kind.can_be_missing):
        return errors.Unavailable(
            f"device {word} is not available: {reason or 'none found'}; devices here: {available}"
        )
    groups = [*group_names(), *([TEAM_GROUP] if any(info.members for info in infos) else [])]
    match = closest_name(word, [*names, *(group for group in groups if group != word)])
    hint = f"did you mean {match}? " if match else ""
    return errors.UsageError(f"no device {quoted(word)}; {hint}devices here: {available}")


# ---- outputs


def _bind_outputs(job: ResolvedJob, spec: JobSpec) -> None:
    """Note what becomes of each output; check the caller's arrays for them."""
    outputs = [array for array in job.specs if array.is_output]
    names = [array.name for array in outputs]
    for requested in spec.outputs:
        if requested and requested not in names:
            raise errors.UsageError(
                f"{job.workload.name} has no output {requested!r}; it has {', '.join(names)}"
            )
    given = dict(spec.outputs)
    if "" in given:
        given[_only_output(job, names, spec.outputs)] = given.pop("")
    for array in outputs:
        target = given.get(array.name)
        if isinstance(target, FileOut):
            job.targets[array.name] = target
        elif target is not None and target.into is not None:
            _bind_caller_array(job, array, target.into)
        else:
            job.into[array.name] = None


def _only_output(job: ResolvedJob, names: Sequence[str], given: Mapping[str, object]) -> str:
    """Return the output that a target without a name is for."""
    optional = job.workload.optional_outputs if isinstance(given[""], FileOut) else ()
    needed = [name for name in names if name not in optional] if len(names) > 1 else names
    if len(needed) != 1 or len(given) > 1:
        raise errors.UsageError(
            f"{job.workload.name} has the outputs {', '.join(names)}: name them"
        )
    return needed[0]


def _bind_caller_array(job: ResolvedJob, array: ArraySpec, into: ArenaRef) -> None:
    expected = array.shape(job.load)
    if into.shape != expected or np.dtype(into.dtype) != np.dtype(array.dtype):
        raise errors.DataError(
            f"out for {array.name} is {into.dtype} {_extent(into.shape)},"
            f" the result is {array.dtype} {_extent(expected)}"
        )
    for name, stored in job.inputs.items():
        if stored.key == into.segment and _overlap(stored, into):
            raise errors.DataError(
                f"out for {array.name} overlaps the input {name}: use another array"
            )
    for name, other in job.into.items():
        if other is not None and other.segment == into.segment and _overlap(other, into):
            raise errors.UsageError(
                f"out for {name} and {array.name} overlap: use separate arrays"
            )
    job.into[array.name] = into


def _extent(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "()"


def _overlap(one: StoredArray | ArenaRef, other: ArenaRef) -> bool:
    return one.offset < _end(other) and other.offset < _end(one)


def _end(array: StoredArray | ArenaRef) -> int:
    return array.offset + math.prod(array.shape) * np.dtype(array.dtype).itemsize


# ---- output files


def check_outputs(job: ResolvedJob) -> tuple[output_files.OutputClaim, ...]:
    """Check that the outputs could be created, but for their space; return what they will need."""
    claims: dict[str, output_files.OutputClaim] = {}
    inputs = _file_identities(job)
    for array, target in _output_files(job):
        shape, dtype = array.shape(job.load), np.dtype(array.dtype).str
        claim = output_files.check_output(
            target.path, shape, dtype, force=target.force, inputs=inputs
        )
        for name, other in claims.items():
            if other.path == claim.path:
                raise errors.UsageError(
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
    for array, target in _output_files(job):
        job.outputs[array.name] = output_files.create_output(
            target.path,
            array.shape(job.load),
            np.dtype(array.dtype).str,
            force=target.force,
            inputs=inputs,
            token=token and f"{token}-{array.name}",
            identity=job.parts_identity,
        )
    job.finished = output_files.common([output.finished for output in job.outputs.values()])
    if job.finished == ((0, job.load),):  # a unit remains: a plan without any is none
        job.finished = ((0, job.load - 1),) if job.load > 1 else ()


def _output_files(job: ResolvedJob) -> list[tuple[ArraySpec, FileOut]]:
    return [(array, job.targets[array.name]) for array in job.specs if array.name in job.targets]


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


def _check_shared_memory(job: ResolvedJob, limit: int) -> None:
    """Check that generated inputs and results in memory fit into `limit` bytes."""
    needed = _shared_bytes(job)
    if needed <= limit:
        return
    if job.iterative is not None:
        raise errors.DataError(
            f"{job.workload.name} with {job.load} rows needs {format_bytes(needed)} of shared"
            f" memory for its inputs, outputs and state, the limit here is {format_bytes(limit)}"
            " (arena.limit in the config)"
        )
    fixed = sum(array_bytes(a, job.load) for a in job.generate if a.role == "resident")
    unit_bytes = (needed - fixed) / job.load
    max_load = max(0, int((limit - fixed) // unit_bytes)) if unit_bytes else 0
    largest = f"the largest load that fits is {max_load} units" if max_load else "no unit fits"
    raise errors.DataError(
        f"{job.workload.name} with {job.load} units needs {format_bytes(needed)} of shared memory,"
        f" the limit here is {format_bytes(limit)}; {largest}; or stream it with --input, --output"
    )


def _shared_bytes(job: ResolvedJob) -> int:
    """Return the bytes of the segments that the job allocates.

    An iterative job keeps everything in memory, so also what it reads from files or writes there.
    """
    arrays = list(job.generate)
    if job.iterative is None:
        arrays += [array for array in job.specs if array.name in job.into]
    else:
        in_state, copied = job.results_in_state, job.copied_inputs
        arrays += [array for array in job.specs if array.is_output and array.name not in in_state]
        arrays += [array for array in job.specs if array.name in copied]
        arrays += job.iterative.work_arrays(job.load, len(job.devices))
        arrays += job.iterative.saved
    return sum([array_bytes(array, job.load) for array in arrays])
