"""`hetsched run WORKLOAD`: run one job without a daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hetsched.cli import interrupts, queue_flags, workload_flags
from hetsched.cli.output import explanation
from hetsched.cli.output.job_result import finish
from hetsched.cli.output.progress import watch
from hetsched.cli.output.terminal import note
from hetsched.cli.request_flags import ConfigName, JobOptions, Json, ParamValue
from hetsched.config import load
from hetsched.errors import Cancelled
from hetsched.job import JobReport, JobState, Running

if TYPE_CHECKING:
    from typer._click import Command

    from hetsched.client.job import Job
    from hetsched.local import Local


def group() -> Command:
    return workload_flags.group("run", run, "Run one job here, without a daemon.")


def run(
    name: str,
    params: Mapping[str, ParamValue],
    options: JobOptions,
    json: Json = False,
    trace: explanation.Trace = None,
    plot: explanation.Plot = None,
    config: ConfigName = None,
    retries: queue_flags.Retries = 0,
    timeout: queue_flags.Timeout = None,
) -> None:
    """Run the workload `name`; Ctrl-C cancels it."""
    explanation.check(trace, plot, options.force)
    queue = queue_flags.QueueFlags(retries=retries, timeout=timeout)
    spec = queue.apply(options.spec(name, params))
    settings, _ = load(config)
    from hetsched.local import Local

    interrupts.reraise()
    with Local(config=settings) as local:
        interrupts.reraise()
        job = local.run(spec)
        try:
            state = watch(job)
        except KeyboardInterrupt:
            state = _cancel(local, job)
        explanation.write_ended(job, state, trace, plot, options.force)
        finish(state, json, lambda report: _next_steps(name, options, report))


def _cancel(local: Local, job: Job) -> JobState:
    """Stop after the current chunks or iteration; a second Ctrl-C stops at once."""
    try:
        job.cancel()
        note(f"stopping after the current {_step(job.progress())}; Ctrl-C again stops at once")
        return watch(job)
    except KeyboardInterrupt:
        local.abandon()
        raise Cancelled(f"interrupted twice; job {job.id} was aborted") from None


def _step(state: JobState) -> str:
    is_iterating = isinstance(state, Running) and state.iteration is not None
    return "iteration" if is_iterating else "chunks"


def _next_steps(name: str, options: JobOptions, report: JobReport) -> str:
    if not options.outputs:
        return "next: --output FILE saves the result, --input FILE reads your own data"
    if not options.verify:
        return "next: --verify checks every unit"
    return (
        f"next: hetsched models shows the measured speeds; hetsched run {name} --help: all flags"
    )
