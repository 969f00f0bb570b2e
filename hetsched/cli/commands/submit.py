"""`hetsched submit WORKLOAD`: submit one job to the daemon and follow it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched.cli import queue_flags, workload_flags
from hetsched.cli.connect import control
from hetsched.cli.output import explanation
from hetsched.cli.output.job_result import finish
from hetsched.cli.output.progress import watch
from hetsched.cli.output.terminal import note, out, out_json
from hetsched.cli.request_flags import JobOptions, Json, ParamValue
from hetsched.errors import Cancelled, HetschedError, UsageError
from hetsched.job import Ended, JobReport, JobState

if TYPE_CHECKING:
    from typer._click import Command

    from hetsched.client.job import Job

SCHEMA = "hetsched.accepted/1"
GRACE_SECONDS = 1.0
"""Seconds after Ctrl-C in which a second one cancels the job; also the time to wait for the number
of a job that has just been sent. Arbitrary: a double press."""


def group() -> Command:
    return workload_flags.group("submit", submit, "Submit one job to the daemon and follow it.")


def submit(  # noqa: PLR0913 - one for each flag
    name: str,
    params: Mapping[str, ParamValue],
    options: JobOptions,
    *,
    json: Json = False,
    detach: Annotated[
        bool, typer.Option("--detach", "--no-wait", help="Print the job number and exit.")
    ] = False,
    parsable: Annotated[
        bool, typer.Option("--parsable", help="Print nothing but the job number and exit.")
    ] = False,
    label: queue_flags.Label = "",
    id: queue_flags.Id = None,
    after: queue_flags.After = None,
    retries: queue_flags.Retries = 0,
    timeout: queue_flags.Timeout = None,
    deadline: queue_flags.Deadline = None,
    hold: queue_flags.Hold = False,
    trace: explanation.Trace = None,
    plot: explanation.Plot = None,
) -> None:
    """Submit the workload `name`; Ctrl-C detaches, a second one cancels."""
    detach = detach or parsable
    if parsable and json:
        raise UsageError("--parsable and --json are two formats of the same; give one of them")
    if detach and (trace is not None or plot is not None):
        raise UsageError(
            "--detach doesn't wait for the job: omit --trace and --plot, and use"
            " `hetsched explain ID` when it has ended"
        )
    explanation.check(trace, plot, options.force)
    queue = queue_flags.QueueFlags(label, id, after or (), retries, timeout, deadline, hold)
    spec = queue.apply(options.spec(name, params))
    with control() as daemon:
        number: Future[int] = Future()
        try:
            job = daemon.submit_spec(spec, follow=_set_number(number))
        except KeyboardInterrupt:
            raise _detached(_wait_for_number(number), daemon.cancel) from None
        if detach:
            _print_accepted(job, json, parsable)
            return
        try:
            state = watch(job)
        except KeyboardInterrupt:
            raise _detached(job.id, daemon.cancel) from None
        explanation.write_ended(job, state, trace, plot, options.force)
        names = tuple(state.results) if isinstance(state, Ended) else ()
        finish(state, json, lambda report: next_steps(job.id, report, names))


def next_steps(number: int, report: JobReport, results: Sequence[str] = ()) -> str:
    """Return the last line below the report of a daemon's job: what to do next.

    `results`: outputs in the daemon's memory.
    """
    target = f"{results[0]}={results[0]}.npy" if len(results) > 1 else "out.npy"
    save = "" if report.outputs else f" | hetsched result {number} -o {target}"
    return f"next: hetsched show {number} | hetsched explain {number}{save}"


def _print_accepted(job: Job, json: bool, parsable: bool) -> None:
    if parsable:
        out(str(job.id))
    elif json:
        out_json({"schema": SCHEMA, "job": job.id, "durability": job.durability})
    else:
        out(f"submitted {job.id}")


def _set_number(number: Future[int]) -> Callable[[JobState], None]:
    """Return a listener that sets the job's number as soon as the daemon has accepted the job."""

    def on_state(state: JobState) -> None:
        if not number.done():
            number.set_result(state.job)

    return on_state


def _wait_for_number(number: Future[int]) -> int:
    """Return the number of a job that may have been accepted. Raises Cancelled if none comes."""
    try:
        return number.result(GRACE_SECONDS)
    except TimeoutError:
        raise Cancelled(
            "interrupted before the daemon confirmed the job;"
            " `hetsched status` shows whether it was accepted"
        ) from None


def _detached(number: int, cancel: Callable[[int], None]) -> Cancelled:
    try:
        note(
            f"job {number} continues: `hetsched wait {number}` follows it,"
            f" `hetsched cancel {number}` or Ctrl-C again stops it"
        )
        time.sleep(GRACE_SECONDS)
    except KeyboardInterrupt:
        try:
            cancel(number)
        except HetschedError as error:
            return Cancelled(f"interrupted twice; job {number} wasn't cancelled: {error}")
        return Cancelled(f"interrupted twice; job {number} was cancelled")
    return Cancelled(f"interrupted; detached from job {number}, which continues")
