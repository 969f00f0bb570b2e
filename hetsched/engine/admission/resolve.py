"""Validation of a job request against the workload, the files and this machine.

It opens files, so it may block. All errors in a request are detected here, before the job is
queued.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from hetsched.device import DeviceInfo
from hetsched.engine.admission.array_binding import (
    bind_input,
    bind_outputs,
    dtype_name,
    open_inputs,
    output_target,
    writes_files,
)
from hetsched.engine.admission.device_selection import select_devices
from hetsched.engine.admission.resolved_job import ResolvedJob, array_bytes
from hetsched.errors import DataError
from hetsched.job import FileOut, JobSpec
from hetsched.transport.device_messages import StoredArray
from hetsched.units import format_bytes
from hetsched.workload import Workload, find, locate


def resolve(
    spec: JobSpec,
    infos: Sequence[DeviceInfo],
    absent: Mapping[str, str],
    arena_limit: int,
    *,
    create_outputs: bool = True,
) -> ResolvedJob:
    """Check `spec` and open its files.

    Parameters
    ----------
    infos : sequence of DeviceInfo
        The devices of this machine.
    absent : mapping
        Unusable device or kind -> reason.
    arena_limit : int, bytes
        Of all shared memory.
    create_outputs : bool
        False: neither create output files nor check that they could be created.

    Raises
    ------
    UsageError, DataError, InputMissing, Unavailable, CantCreate
    """
    workload = find(spec.workload)
    devices = select_devices(spec.devices, infos, absent)
    files: set[int] = set()
    try:
        stored = open_inputs(workload, spec, files)
        job = _infer(spec, workload, devices, stored, files)
        _check_shared_memory(job, spec, arena_limit)
    except BaseException:
        while files:
            os.close(files.pop())
        raise
    if create_outputs:
        _bind_outputs(job, spec)
    job.in_files = bool(job.files) or writes_files(spec)
    return job


def _infer(
    spec: JobSpec,
    workload: Workload,
    devices: tuple[str, ...],
    stored: Mapping[str, StoredArray],
    files: set[int],
) -> ResolvedJob:
    """Derive parameters and load from the request and its inputs, and bind the inputs."""
    shapes = {name: (array.shape, dtype_name(array.dtype)) for name, array in stored.items()}
    params = workload.infer(spec.params, shapes)
    job = ResolvedJob(
        workload,
        locate(spec.workload),
        params,
        workload.load(params),
        list(workload.arrays(params)),
        devices,
        files=files,
        measure=spec.measure,
    )
    for array in job.specs:
        if array.is_input:
            bind_input(job, array, stored.get(array.name))
    return job


def _bind_outputs(job: ResolvedJob, spec: JobSpec) -> None:
    try:
        bind_outputs(job, spec)
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
    results = [
        array
        for array in job.specs
        if array.is_output and not isinstance(output_target(job, spec, array.name), FileOut)
    ]
    needed = sum(array_bytes(array, job.load) for array in [*job.generate, *results])
    if needed <= limit:
        return
    max_load = _max_load(job, needed, limit)
    largest = f"the largest load that fits is {max_load} units" if max_load else "no unit fits"
    raise DataError(
        f"{job.workload.name} with {job.load} units needs {format_bytes(needed)} of shared memory,"
        f" the limit here is {format_bytes(limit)}; {largest}; or stream it with --input, --output"
    )


def _max_load(job: ResolvedJob, needed: int, limit: int) -> int:
    """Return the largest load that fits; 0 if none does."""
    fixed = sum(array_bytes(a, job.load) for a in job.generate if a.role == "resident")
    unit_bytes = (needed - fixed) / job.load
    return max(0, int((limit - fixed) // unit_bytes)) if unit_bytes else 0
