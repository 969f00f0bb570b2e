"""Binds a job request to the workload, its inputs and the devices of this machine.

It opens files and runs code of plug-ins, so it may block, except `bind` (`admission.py` decides
which thread calls it). `check` and `open_job` do it at submission and at the job's turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched.device import DeviceInfo
from hetsched.engine.admission.array_binding import (
    bind_input,
    create_outputs,
    dtype_name,
    note_generated,
    open_inputs,
    output_target,
)
from hetsched.engine.admission.declaration import (
    Declaration,
    Shapes,
    declare,
    has_files,
    load_workload,
)
from hetsched.engine.admission.device_selection import select_devices
from hetsched.engine.admission.input_opener import InputOpener
from hetsched.engine.admission.iterative_declaration import IterativeDeclaration, not_saving_note
from hetsched.engine.admission.resolved_job import ResolvedJob, array_bytes
from hetsched.engine.threads.step import Step
from hetsched.errors import DataError, UsageError
from hetsched.iteration_options import check_not_iterative
from hetsched.job import ArenaOut, FileOut, JobSpec
from hetsched.transport.device_messages import StoredArray
from hetsched.units import format_bytes


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


def resolve(spec: JobSpec, machine: MachineLimits, *, with_outputs: bool = True) -> ResolvedJob:
    """Check `spec`, open its files and create its output files: `check` and `open_job` in one.

    `with_outputs`: False: neither create output files nor check that they could be created.

    Raises
    ------
    UsageError, DataError, InputMissing, Unavailable, CantCreate
    """
    step = Step()
    opener = InputOpener(step)
    try:
        job, _ = resolve_inputs(spec, machine, opener, step)
    except BaseException:
        opener.close()
        raise
    if with_outputs:
        create_all(job, spec)
    return job


def resolve_inputs(
    spec: JobSpec,
    machine: MachineLimits,
    opener: InputOpener,
    step: Step,
    earlier: Declaration | None = None,
) -> tuple[ResolvedJob, Declaration]:
    """Open the inputs and bind them; the job takes over the files of `opener`.

    `earlier`: of the same request, reused if its inputs have the same shapes.

    Raises
    ------
    UsageError, DataError, InputMissing, Unavailable
    """
    select_devices(spec.devices, machine.infos, machine.absent)  # before slow steps
    workload = load_workload(spec.workload, step)
    stored = open_inputs(workload, spec, opener)
    shapes = shapes_of(stored)
    if earlier is None or earlier.shapes != shapes:
        earlier = declare(spec, workload, shapes, step)
    return bind(spec, earlier, stored, machine, opener), earlier


def shapes_of(stored: Mapping[str, StoredArray]) -> Shapes:
    """Return the shapes and dtypes of inputs, for plug-ins."""
    return {name: (array.shape, dtype_name(array.dtype)) for name, array in stored.items()}


def bind(
    spec: JobSpec,
    declaration: Declaration,
    stored: Mapping[str, StoredArray],
    machine: MachineLimits,
    opener: InputOpener,
) -> ResolvedJob:
    """Bind devices and inputs. Doesn't block, nor call code of plug-ins.

    Raises
    ------
    UsageError, DataError, Unavailable
    """
    _check_kind(spec, declaration)
    job = ResolvedJob(
        declaration.workload,
        declaration.reference,
        declaration.params,
        declaration.load,
        declaration.specs,
        select_devices(spec.devices, machine.infos, machine.absent),
        speed_key=declaration.speed_key,
        files=opener.files,
        loaded=opener.loaded,
        measure=spec.measure,
        in_files=has_files(spec),
        iterative=declaration.iterative,
    )
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
    if declaration.iterative is None:
        check_not_iterative(spec, declaration.workload.name)
    elif spec.measure:
        raise UsageError(
            f"{declaration.workload.name} is iterative: its devices are measured while it runs,"
            " not by explicit measurements"
        )


def _without_needless_saves(
    job: ResolvedJob, declaration: IterativeDeclaration, spec: JobSpec, machine: MachineLimits
) -> IterativeDeclaration:
    """Save nothing unless a device keeps rows in its own memory, and what is saved may fit."""
    has_memory = any(
        info.name in job.devices and info.link and not info.is_modelled for info in machine.infos
    )
    fits = has_memory and _shared_bytes(job, spec) <= machine.arena_limit
    if has_memory and not fits:
        nbytes = sum(array.nbytes for array in declaration.saved_arrays())
        job.notes.append(not_saving_note(nbytes))
    return declaration if fits else replace(declaration, saved={})


def create_all(job: ResolvedJob, spec: JobSpec, token: str = "") -> None:
    """Create the output files; on an error close the job. Raises DataError, CantCreate."""
    try:
        create_outputs(job, spec, token)
    except BaseException:
        job.close()
        raise


def _check_shared_memory(job: ResolvedJob, spec: JobSpec, limit: int) -> None:
    """Check that generated inputs and results in memory fit into `limit` bytes.

    Raises
    ------
    DataError
        They don't; the message gives the largest load that fits.
    """
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
