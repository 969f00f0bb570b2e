"""Rejects jobs whose arrays can never fit into shared memory."""

from __future__ import annotations

from hetsched.engine.admission.outputs import output_target
from hetsched.engine.admission.resolved_job import ResolvedJob, array_bytes
from hetsched.errors import DataError
from hetsched.job import FileOut, JobSpec
from hetsched.units import format_bytes


def check_fits(job: ResolvedJob, spec: JobSpec, limit: int) -> None:
    """Check that generated inputs and results in memory fit into `limit` bytes.

    Raises
    ------
    DataError
        They don't; names the largest load that fits.
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
    """Return the largest load that fits, 0 if none does."""
    fixed = sum(array_bytes(a, job.load) for a in job.generate if a.role == "resident")
    unit_bytes = (needed - fixed) / job.load
    return max(0, int((limit - fixed) // unit_bytes)) if unit_bytes else 0
