"""`run --cluster` and `submit --cluster`: one job over the hosts of a Dask cluster."""

from __future__ import annotations

import msgspec

from hetsched.cli.progress import has_bars
from hetsched.cli.terminal import answer, note
from hetsched.errors import Cancelled, UsageError
from hetsched.job import FileOut, FileRef, JobSpec
from hetsched.units import format_seconds

TAKEN = (
    "workload",
    "params",
    "inputs",
    "outputs",
    "devices",
    "memory_limit",
    "verify",
    "seed",
    "every",
)


def run_on_hosts(spec: JobSpec, cluster: str, insecure: bool, force: bool, json: bool) -> None:
    """Run a job there, and print which host did what.

    Raises
    ------
    UsageError
        The job has options that hosts don't take.
    HetschedError
    """
    for field in msgspec.structs.fields(JobSpec):
        if field.name not in TAKEN and getattr(spec, field.name) != field.default:
            if field.default is msgspec.NODEFAULT or not getattr(spec, field.name):
                continue
            raise UsageError(f"--{field.name.replace('_', '-')} isn't for a job over hosts")
    from hetsched.hosts.client import connect

    with connect(cluster, insecure=insecure) as client:
        if has_bars():
            note(f"hosts: {', '.join(client.hosts())}")
        job = client.submit(
            spec.workload,
            {n: ref.path for n, ref in spec.inputs.items() if isinstance(ref, FileRef)} or None,
            out={n: o.path for n, o in spec.outputs.items() if isinstance(o, FileOut)} or None,
            force=force,
            seed=spec.seed,
            devices=spec.devices,
            memory_limit=spec.memory_limit,
            verify=spec.verify,
            every=spec.every,
            **spec.params,
        )
        try:
            result = job.result()
        except KeyboardInterrupt:
            job.cancel()
            raise Cancelled("interrupted; the job over hosts was cancelled") from None
    outcome = job.outcome
    assert outcome is not None
    saved = [result] if isinstance(result, str) else []
    if isinstance(result, dict):
        saved = [value for value in result.values() if isinstance(value, str)]
    record = {"workload": spec.workload, **outcome.record(), "outputs": saved}
    lines = [f"{spec.workload} over hosts: {format_seconds(outcome.seconds)}"]
    lines += outcome.explain().splitlines()
    lines += [f"result: {path}" for path in saved] or ["next: --output FILE saves the result"]
    answer(json, "hosts/1", record, lines)
