"""`hetsched run WORKLOAD`: one job on this machine with no daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetsched.cli import workload_flags
from hetsched.cli.interrupts import check
from hetsched.cli.output import explanation
from hetsched.cli.output.job_result import finish
from hetsched.cli.output.progress import watch
from hetsched.cli.output.terminal import note
from hetsched.cli.request_flags import ConfigName, Json, Request
from hetsched.config import load
from hetsched.errors import Cancelled
from hetsched.job import JobReport, JobState


def group() -> Any:
    return workload_flags.group("run", run, "Run one job here, with no daemon.")


def run(
    name: str,
    given: Mapping[str, Any],
    request: Request,
    json: Json = False,
    trace: explanation.Trace = None,
    plot: explanation.Plot = None,
    config: ConfigName = None,
) -> None:
    """Run the workload `name`; Ctrl-C cancels it."""
    explanation.check(trace, plot, request.force)
    settings, _ = load(config)
    from hetsched.local import Local

    check()
    with Local(config=settings) as local:
        check()
        job = _submit(local, name, given, request)
        try:
            state = watch(job)
        except KeyboardInterrupt:
            state = _cancel(local, job)
        explanation.keep(job, state, trace, plot, request.force)
        finish(state, json, lambda report: _next(name, request, report))


def _submit(local: Any, name: str, given: Mapping[str, Any], request: Request) -> Any:
    return local.submit(
        name,
        request.inputs or None,
        out=request.outputs or None,
        devices=request.devices,
        memory_limit=request.memory_limit,
        verify=request.verify,
        seed=request.seed,
        priority=request.priority,
        force=request.force,
        **given,
    )


def _cancel(local: Any, job: Any) -> JobState:
    """Stop at a chunk's edge; a second Ctrl-C doesn't wait for that."""
    try:
        job.cancel()
        note("stopping at a chunk's edge; Ctrl-C again doesn't wait for that")
        return watch(job)
    except KeyboardInterrupt:
        local.abandon()
        raise Cancelled(f"interrupted twice; job {job.id} was cut off") from None


def _next(name: str, request: Request, report: JobReport) -> str:
    """What to try after this."""
    if not request.outputs:
        return "next: --output FILE keeps the result, --input FILE transforms your own"
    if not request.verify:
        return "next: --verify checks every unit"
    return f"next: hetsched models shows what was learnt; hetsched run {name} --help has all flags"
