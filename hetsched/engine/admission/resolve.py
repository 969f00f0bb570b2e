"""Checks a job request against the workload, the files and this machine.

Opens files, so it may block. Every mistake in a request is found here, before the job is queued.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from hetsched.device import DeviceInfo
from hetsched.engine.admission.device_selection import select_devices
from hetsched.engine.admission.inputs import bind_input, dtype_name, open_inputs
from hetsched.engine.admission.outputs import bind_outputs, writes_files
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.admission.shared_memory import check_fits
from hetsched.job import JobSpec
from hetsched.transport.device_messages import StoredArray
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
        Device or kind that can't be used -> why.
    arena_limit : int, bytes
        Of all shared memory.
    create_outputs : bool
        False: create no output file, and don't check that it could be created.

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
        check_fits(job, spec, arena_limit)
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
