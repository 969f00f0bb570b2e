"""Admits jobs: `check` at submission, `open` when the job's turn comes.

`check` closes all files again, so a long queue takes neither descriptors nor disk space. What may
hang is done in a thread; a job without files whose kind is known is checked on the loop, in
microseconds, and never opened.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from hetsched import __version__, errors
from hetsched.bounded_cache import BoundedCache
from hetsched.device import DeviceInfo, group_names, kind_of_group
from hetsched.engine.admission.resolved_job import (
    Declaration,
    ResolvedJob,
    array_bytes,
    declare,
    declared_variants,
    file_key,
    is_plain,
    load_workload,
    plug_in,
)
from hetsched.engine.threads import Pool, enter
from hetsched.iterations.saved_state import saved_bytes
from hetsched.job import ArenaRef, FileOut, InputRef, JobSpec, arena_refs, has_files
from hetsched.jobs.table import JobUses
from hetsched.paths import split_path
from hetsched.sparse import PARTS, Shapes, part_name
from hetsched.store import checkpoint, formats, output_files
from hetsched.store.matrix_file import (
    is_matrix_file,
    read_matrix,
    read_matrix_header,
    reading_seconds,
)
from hetsched.transport.arena import Arena
from hetsched.transport.device_messages import StoredArray
from hetsched.units import closest_name, common, counted, format_bytes, quoted
from hetsched.workload import ArraySpec, BaseWorkload, Iterative, SparseMatrix

PROMISED_KEY = -1 << 31
"""The key of a file that doesn't exist yet: no descriptor has it."""
LOADED_KEY = -1 << 30
"""The key of an array that is read from a file as a whole, when its job is opened."""

MAX_DECLARATION_BYTES = 4 << 20
"""Of the declarations that are kept, with their keys."""
BYTES_PER_DECLARATION = 1024
"""Estimate for a declaration besides its parameters, which are as long as the key."""
MIN_ALLOCATION_RATE = 50e6
"""Bytes per second: a file system without fallocate allocates by writing."""
TEAM_GROUP = "team"
"""The group of all teams; the group "cpu" has both teams and single cores."""
ITERATION_OPTIONS = {
    "balance": "auto",
    "warm_up": "",
    "checkpoint": "",
    "every": None,
    "resume": "",
    "hold_every": 0,
}
"""Options that only iterative jobs have -> unset."""


@dataclass(frozen=True)
class MachineLimits:
    """What a job may use of this machine."""

    infos: Sequence[DeviceInfo]
    absent: Mapping[str, str]  # Unusable device or kind -> why
    arena_limit: int  # Bytes of all shared memory
    memory_limit: int | None = None  # Bytes of each device's own memory, for jobs that set none


class Admission:
    def __init__(self, pool: Pool, uses: JobUses, machine: Callable[[], MachineLimits]) -> None:
        self._pool, self._uses, self._machine = pool, uses, machine
        self._declarations: BoundedCache[bytes, Declaration] = BoundedCache(
            max_bytes=MAX_DECLARATION_BYTES
        )

    async def check(self, spec: JobSpec, *, is_readmitted: bool = False) -> ResolvedJob:
        """Check a job; its files are closed. `is_readmitted`: an earlier daemon accepted it."""
        machine, key = self._machine(), b""
        if not has_files(spec):
            references = spec.inputs.items()
            arrays = [(n, r.shape, r.dtype) for n, r in references if isinstance(r, ArenaRef)]
            key = msgspec.msgpack.encode((spec.workload, spec.params, arrays))
            if (known := self._declarations.get(key)) is not None:
                return bind(spec, known, InputOpener().open(known.workload, spec), machine)

        def check() -> ResolvedJob:
            opener = InputOpener(uses=self._uses)
            job = resolve(spec, machine, opener)
            try:
                enter("checking the output folder")
                job.claims = check_outputs(job)
                check_checkpoints(job, spec, is_readmitted=is_readmitted)
            finally:
                job.close()
            job.input_paths, job.input_bytes = tuple(opener.paths), opener.nbytes
            job.checkpoint = os.path.realpath(spec.checkpoint) if spec.checkpoint else ""
            return job

        job = await self._pool.call(check, discard=ResolvedJob.close)
        if key and job.declaration is not None:
            nbytes = 2 * len(key) + BYTES_PER_DECLARATION
            self._declarations.put(key, job.declaration, nbytes)
        return job

    async def open(self, spec: JobSpec, checked: ResolvedJob, token: str = "") -> ResolvedJob:
        """Open the inputs as they are now; create the outputs, hidden by names with `token`."""
        machine = self._machine()

        def open_files() -> ResolvedJob:
            opener = InputOpener(max_read=machine.arena_limit)
            job = resolve(spec, machine, opener, checked.declaration)
            try:
                enter("creating output files")
                create_outputs(job, spec, token)
            except BaseException:
                job.close()
                raise
            return job

        seconds = sum(claim.nbytes for claim in checked.claims) / MIN_ALLOCATION_RATE
        if checked.iterative is not None:
            seconds += reading_seconds(checked.input_bytes)
        return await self._pool.call(
            open_files, discard=ResolvedJob.close, deadline=self._pool.deadline + seconds
        )


def resolve(
    spec: JobSpec,
    machine: MachineLimits,
    opener: InputOpener | None = None,
    earlier: Declaration | None = None,
) -> ResolvedJob:
    """Open the inputs and bind all; `earlier` is reused if its inputs have the same shapes."""
    opener = opener or InputOpener()
    try:
        workload = load_workload(spec.workload)
        stored = opener.open(workload, spec)
        shapes = shapes_of(stored)
        if earlier is None or earlier.shapes != shapes:
            earlier = declare(spec, workload, shapes)
        job = bind(spec, earlier, stored, machine)
    except BaseException:
        opener.close()
        raise
    job.files, job.loaded = opener.files, opener.loaded
    return job


# ---- inputs


class InputOpener:
    """Opens the inputs of one job. `close` it unless the job takes over `files`.

    `uses`: an input may be what the jobs will write that this one runs after. `max_read`: bytes
    that files which are read whole may hold; None: only their headers are read, so the number of
    entries of a sparse matrix is an estimate.
    """

    def __init__(self, *, uses: JobUses | None = None, max_read: int | None = None) -> None:
        self._uses = uses
        self._max_read = max_read
        self.files: set[int] = set()
        self.nbytes = 0
        self.paths: list[str] = []
        self.loaded: dict[str, np.ndarray] = {}

    def open(self, workload: BaseWorkload, spec: JobSpec) -> dict[str, StoredArray]:
        opened: dict[str, StoredArray] = {}
        after = {dependency.job for dependency in spec.after}
        for name, reference in _named(workload, spec.inputs).items():
            matrix = next((each for each in workload.composites if each.name == name), None)
            if isinstance(reference, ArenaRef):
                if matrix is not None:
                    raise errors.DataError(
                        f"input {name} is a sparse matrix, not one array: give a SciPy sparse"
                        f" array, such as scipy.sparse.csr_array({name})"
                    )
                opened[name] = StoredArray(
                    array=name,
                    key=reference.segment,
                    shape=reference.shape,
                    dtype=reference.dtype,
                    offset=reference.offset,
                    lent=reference.lent,
                )
            else:
                is_iterative = isinstance(workload, Iterative)
                opened |= self._open_file(name, reference.path, matrix, is_iterative, after)
        for composite in workload.composites:
            composite.check(shapes_of(opened))
        return opened

    def _open_file(
        self,
        name: str,
        path: str,
        matrix: SparseMatrix | None,
        is_iterative: bool,
        after: Collection[int],
    ) -> dict[str, StoredArray]:
        """Open a file with `matrix` or an array, which a job of `after` may have to write yet."""
        enter(f"opening {path}")
        self.paths.append(os.path.realpath(split_path(path).file))
        promise = None if self._uses is None else self._uses.promise(self.paths[-1])
        job, claim = promise or (None, None)
        if claim is not None and job in after and matrix is None:
            promised = StoredArray(
                array=name, key=PROMISED_KEY, shape=claim.shape, dtype=claim.dtype
            )
            return {name: promised}
        expected = "a file with an array" if matrix is None else "a Matrix Market or .npz file"
        try:
            fd = formats.open_file(path, expected)
        except errors.InputMissing as error:
            if job is None:
                raise
            raise errors.InputMissing(
                f"{error}; job {job} will write it: submit this job with --after {job}"
            ) from None
        self.files.add(fd)
        self.nbytes += os.fstat(fd).st_size
        if matrix is not None or (is_iterative and is_matrix_file(fd)):
            return self._read_matrix(name, path, fd, matrix)
        layout = formats.read_layout(path, fd)
        stored = StoredArray(array=name, key=file_key(fd), **msgspec.structs.asdict(layout))
        return {name: stored}

    def _read_matrix(
        self, name: str, path: str, fd: int, matrix: SparseMatrix | None
    ) -> dict[str, StoredArray]:
        header = read_matrix_header(path, fd)
        shapes = header.dense_shape(path) if matrix is None else header.sparse_shapes(path)
        names = {part: name if matrix is None else part_name(name, part) for part in shapes}
        if self._max_read is not None:
            enter(f"reading {path}")
            parts = read_matrix(path, fd, shapes, self._max_read)
            shapes = {part: (array.shape, array.dtype.name) for part, array in parts.items()}
            self.loaded |= {names[part]: array for part, array in parts.items()}
        return {
            names[part]: StoredArray(array=names[part], key=LOADED_KEY, shape=shape, dtype=dtype)
            for part, (shape, dtype) in shapes.items()
        }

    def close(self) -> None:
        while self.files:
            os.close(self.files.pop())


def shapes_of(stored: Mapping[str, StoredArray]) -> Shapes:
    """Return the shapes of inputs, and NumPy's names of their dtypes, for plug-ins."""
    return {name: (array.shape, np.dtype(array.dtype).name) for name, array in stored.items()}


def _named(workload: BaseWorkload, inputs: Mapping[str, InputRef]) -> Mapping[str, InputRef]:
    """Return inputs of the workload by name; "" is the only one that it needs."""
    if "" in inputs:
        if len(inputs) > 1:
            raise errors.UsageError(
                f"{workload.name}: give every input its name, NAME=FILE or {{name: array}}"
            )
        only = workload.only_input
        if only is None:
            names = ", ".join(workload.input_names)
            raise errors.UsageError(
                f"{workload.name} has the inputs {names}: name them, NAME=FILE or {{name: array}}"
            )
        return {only: inputs[""]}
    names_of_inputs = {*workload.inputs, *workload.input_names}
    for name in inputs:
        if name not in names_of_inputs:
            owner, _, part = name.rpartition(".")
            if part in PARTS and owner in workload.inputs:
                raise errors.DataError(
                    f"{workload.name} takes {owner} as a dense array, not as a sparse matrix: give"
                    f" {owner}.toarray()"
                )
            names = ", ".join(workload.input_names)
            raise errors.UsageError(f"{workload.name} has no input {name!r}; it has {names}")
    for composite in workload.composites:
        for part in composite.arrays:
            if part in inputs and composite.name in inputs:
                raise errors.UsageError(
                    f"input {part} is part of {composite.name}: give one of the two"
                )
    return inputs


# ---- what the job binds


def bind(
    spec: JobSpec,
    declaration: Declaration,
    stored: Mapping[str, StoredArray],
    machine: MachineLimits,
) -> ResolvedJob:
    """Bind devices, inputs and outputs. Doesn't block, nor call code of plug-ins."""
    _check_kind(spec, declaration)
    if spec.verify and not declaration.workload.can_verify:
        raise errors.Unavailable(
            f"{declaration.workload.name} declares no checks of its results: leave out --verify"
        )
    job = ResolvedJob(
        **vars(declaration),  # a job has all that its kind has
        declaration=declaration,
        devices=select_devices(spec.devices, machine.infos, machine.absent),
        measure=spec.measure,
        schedule=spec.schedule,
        memory_limit=spec.memory_limit or machine.memory_limit,
        in_files=has_files(spec),
    )
    infos = [info for info in machine.infos if info.name in job.devices]
    if job.workload.in_threads != "no" and any(ref.lent for ref in arena_refs(spec)):
        _choose_threads(job, infos, machine.absent)
    has_link = any(info.link for info in infos)
    if spec.memory_limit is not None and not has_link:
        raise errors.UsageError(
            f"memory_limit: {format_bytes(spec.memory_limit)}, but none of the job's devices has"
            f" memory of its own ({', '.join(job.devices)}); leave it out"
        )
    if spec.schedule != "best" and not has_link:
        job.notes.append(
            f"schedule {spec.schedule}: changes nothing on {', '.join(job.devices)}, which copy"
            " nothing; it is for devices with memory of their own"
        )
    for array in job.specs:
        if array.is_input:
            _bind_input(job, array, stored.get(array.name))
    _bind_outputs(job, spec)
    if job.iterative is not None and not (spec.checkpoint or has_link):  # all rows are at home
        job.iterative = replace(job.iterative, saved=())
    if job.inputs and job.generate:
        generated = [array.name for array in job.generate]
        names = ", ".join(job.workload.user_names(generated))
        job.notes.append(f"input {names}: not given, so generated")
    _check_shared_memory(job, machine.arena_limit, saves=bool(spec.checkpoint))
    return job


def _choose_threads(
    job: ResolvedJob, infos: Sequence[DeviceInfo], absent: Mapping[str, str]
) -> None:
    """Compute in threads, on the caller's own arrays, if all devices but teams can."""
    single = [info for info in infos if not info.members]
    if job.workload.in_threads == "yes":
        if single and all(info.runs_in_threads for info in single):
            job.in_threads, job.devices = True, tuple(info.name for info in single)
        return
    able = [info for info in single if declared_variants(job.workload, info.variant_kind)]
    if not able:
        reasons = "".join(f"; {name}: {reason}" for name, reason in absent.items())
        raise errors.Unavailable(
            f"{', '.join(job.devices)}: only cores, and GPUs that it has a twin for, call"
            f" functions{reasons}"
        )
    job.in_threads, job.devices = True, tuple(info.name for info in able)
    if others := [info.name for info in single if info not in able]:
        job.notes.append(
            f"without {', '.join(others)}: the function has no twin for that, and doesn't ask"
            " hetsched.namespace for its library"
        )


def _check_kind(spec: JobSpec, declaration: Declaration) -> None:
    if declaration.iterative is not None:
        if spec.measure:
            raise errors.UsageError(
                f"{declaration.workload.name} is iterative: its devices are measured while it"
                " runs, not by explicit measurements"
            )
        if spec.schedule != "best":
            raise errors.UsageError(
                f"schedule: {declaration.workload.name} is iterative: its rows stay on the"
                " devices, so there are no chunks to schedule"
            )
        if spec.hold_every and not declaration.iterative.results:
            raise errors.UsageError(
                f"hold_every: {declaration.workload.name} has no results between its iterations,"
                " or doesn't with these parameters"
            )
        return
    options = [name for name, unset in ITERATION_OPTIONS.items() if getattr(spec, name) != unset]
    if options:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise errors.UsageError(
            f"{declaration.workload.name} has no iterations, so {names} can't be used with it: it"
            " is computed in one pass"
        )


def _bind_input(job: ResolvedJob, array: ArraySpec, stored: StoredArray | None) -> None:
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
    if not requested:
        return tuple([info.name for info in infos])
    selected: set[str] = set()
    for word in requested:
        kind = kind_of_group(word)
        members = {
            info.name
            for info in infos
            if word in (info.name, info.kind)
            or (kind is not None and info.kind == kind.name)
            or (word == TEAM_GROUP and info.members)
        }
        if not members:
            raise _unknown_device(word, infos, absent)
        selected |= members
    return tuple(info.name for info in infos if info.name in selected)


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
    outputs = [array for array in job.specs if array.is_output]
    names = [array.name for array in outputs]
    for requested in spec.outputs:
        if requested and requested not in names:
            raise errors.UsageError(
                f"{job.workload.name} has no output {requested!r}; it has {', '.join(names)}"
            )
    given = dict(spec.outputs)
    if "" in given:  # for the only one
        optional = job.workload.optional_outputs if isinstance(given[""], FileOut) else ()
        needed = [name for name in names if name not in optional] if len(names) > 1 else names
        if len(needed) != 1 or len(given) > 1:
            raise errors.UsageError(
                f"{job.workload.name} has the outputs {', '.join(names)}: name them"
            )
        given[needed[0]] = given.pop("")
    for array in outputs:
        target = given.get(array.name)
        if isinstance(target, FileOut):
            job.targets[array.name] = target
        elif target is not None and target.into is not None:
            _bind_caller_array(job, array, target.into)
        else:
            job.into[array.name] = None


def _bind_caller_array(job: ResolvedJob, array: ArraySpec, into: ArenaRef) -> None:
    expected = array.shape(job.load)
    is_same = np.dtype(into.dtype) == np.dtype(array.dtype)
    is_castable = np.can_cast(np.dtype(array.dtype), np.dtype(into.dtype), "same_kind")
    if into.lent and into.shape == expected and is_castable and not is_same:
        job.into[array.name] = None  # its submitter copies the result
        return
    if into.shape != expected or not is_same:
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
    sizes = [math.prod(each.shape) * np.dtype(each.dtype).itemsize for each in (one, other)]
    return one.offset < other.offset + sizes[1] and other.offset < one.offset + sizes[0]


# ---- shared memory


def _check_shared_memory(job: ResolvedJob, limit: int, *, saves: bool) -> None:
    """Raise DataError unless what the job allocates fits; what devices save only if it `saves`."""
    arrays = list(job.generate)
    if job.iterative is None:
        arrays += [array for array in job.specs if array.name in job.into]
    else:
        in_state = job.results_in_state
        for array in job.specs:
            stored = job.inputs.get(array.name)
            is_copied = stored is not None and not is_plain(stored, array)
            if is_copied or (array.is_output and array.name not in in_state):
                arrays.append(array)
        arrays += job.iterative.work_arrays(job.load, len(job.devices))
        arrays += job.iterative.saved if saves else ()
    needed = sum([array_bytes(array, job.load) for array in arrays])
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
    load, largest = counted(job.load, "unit"), "no unit fits"
    if max_load:
        largest = f"the largest load that fits is {counted(max_load, 'unit')}"
    raise errors.DataError(
        f"{job.workload.name} with {load} needs {format_bytes(needed)} of shared memory,"
        f" the limit here is {format_bytes(limit)}; {largest}; or stream it with --input, --output"
    )


# ---- output files


def check_outputs(job: ResolvedJob) -> tuple[output_files.OutputClaim, ...]:
    """Check that the outputs could be created, but for their space; return what they will need."""
    claims: dict[str, output_files.OutputClaim] = {}
    inputs = _file_identities(job)
    for array, target in _output_files(job):
        shape, dtype = array.file_shape(job.load), np.dtype(array.dtype).str
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
    """Create output files; one of an earlier attempt with this `token` is removed."""
    inputs = _file_identities(job)
    if token and job.iterative is None and not job.into:  # what is in memory is lost in a crash
        with plug_in(job.workload.name, "paths"):
            read = [f"/proc/self/fd/{fd}" for fd in job.files]
            paths = [*read, *job.workload.paths(job.params)]
        code = (__version__, spec.workload, job.source)
        stamps = sorted(map(formats.stamps, paths))
        raw = msgspec.msgpack.encode((code, spec.params, spec.seed, job.load, stamps))
        job.parts_identity = hashlib.blake2b(raw, digest_size=16).hexdigest()
    for array, target in _output_files(job):
        job.outputs[array.name] = output_files.create_output(
            target.path,
            array.file_shape(job.load),
            np.dtype(array.dtype).str,
            force=target.force,
            inputs=inputs,
            token=token and f"{token}-{array.name}",
            identity=job.parts_identity,
            axis=array.axis,
        )
    job.finished = common([output.finished for output in job.outputs.values()])
    if job.finished == ((0, job.load),):  # a unit remains: a plan without any is none
        job.finished = ((0, job.load - 1),) if job.load > 1 else ()


def _output_files(job: ResolvedJob) -> list[tuple[ArraySpec, FileOut]]:
    return [(array, job.targets[array.name]) for array in job.specs if array.name in job.targets]


def _file_identities(job: ResolvedJob) -> set[tuple[int, int]]:
    """Return (st_dev, st_ino) of the inputs: no output may be one of them."""
    found = map(os.fstat, job.files)
    return {(status.st_dev, status.st_ino) for status in found}


# ---- checkpoints


def check_checkpoints(job: ResolvedJob, spec: JobSpec, *, is_readmitted: bool = False) -> None:
    """Check that the job can continue from its checkpoint, and write others.

    The values of its inputs are compared when it runs. So are their shapes if they aren't known
    yet, and everything if an earlier job may write the checkpoint. `is_readmitted`: it runs even
    if no checkpoint can be written now.
    """
    if not spec.checkpoint and not spec.resume:
        return
    outputs = [os.path.realpath(o.path) for o in spec.outputs.values() if isinstance(o, FileOut)]
    for path in filter(None, (spec.checkpoint, spec.resume)):
        if os.path.realpath(path) in outputs:
            raise errors.UsageError(f"{path}: both a checkpoint and an output; give another name")
    assert job.iterative is not None, "others have no such options"
    assert isinstance(job.workload, Iterative), "others have no such options"
    is_written = bool(spec.checkpoint) and not is_readmitted
    if is_written:
        enter(f"creating a file beside {spec.checkpoint}")
        output = output_files.create_file(spec.checkpoint, 0, force=True)
        try:  # without taking the room, which running jobs may need
            size = saved_bytes(job.workload, job.params)
            output_files.check_room(spec.checkpoint, output.fd, size)
        finally:
            output.discard()
    if spec.after:
        return
    problem = None
    if all(stored.key != LOADED_KEY for stored in job.inputs.values()):  # else it is read later
        sources = {array.name: f"seed:{spec.seed}" for array in job.generate}
        problem, _ = checkpoint.problem_of(job.workload, job.params, job.specs, sources)
    if spec.resume:
        enter(f"reading {spec.resume}")
        record = checkpoint.read_record(spec.resume)
        if problem is not None:
            checkpoint.check_problem(spec.resume, record, problem)
            checkpoint.check_iteration(spec.resume, record, job.iterative.max_iterations)
    if is_written:
        enter(f"checking {spec.checkpoint}")
        checkpoint.check_target(spec.checkpoint, problem)


# ---- the segments of requests


def hold_segments(arena: Arena, spec: JobSpec) -> Callable[[], None]:
    """Retain every segment named in `spec`; return what releases them."""
    refs = arena_refs(spec)
    for ref in refs:
        _check_ref(arena, ref)
    return arena.hold([ref.segment for ref in refs])


def _check_ref(arena: Arena, ref: ArenaRef) -> None:
    if not arena.holds(ref.segment):
        raise errors.DataError(
            f"segment {ref.segment} is not in the arena; it may have been released"
        )
    if ref.lent != (arena.segment(ref.segment).lent is not None):
        raise errors.DataError(f"segment {ref.segment} is {'not ' * ref.lent}lent")
    if ref.lent:
        return
    try:
        size = math.prod(ref.shape) * np.dtype(ref.dtype).itemsize
    except Exception:  # NumPy's parser raises various exceptions for a client's text
        raise errors.DataError(f"{ref.dtype!r} is not a dtype") from None
    capacity = arena.segment(ref.segment).nbytes
    if min(ref.shape, default=1) < 0 or ref.offset < 0 or ref.offset + size > capacity:
        raise errors.DataError(
            f"an array of {size} bytes at offset {ref.offset} is outside segment {ref.segment},"
            f" which has {capacity} bytes"
        )
