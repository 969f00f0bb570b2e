"""`hetsched submit WORKLOAD`: one job for the daemon, followed until it has ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Annotated, Any

import typer

from hetsched.cli import workload_flags
from hetsched.cli.connect import control
from hetsched.cli.output import explanation
from hetsched.cli.output.job_result import finish
from hetsched.cli.output.progress import watch
from hetsched.cli.output.terminal import note, out, out_json
from hetsched.cli.request_flags import Json, Request
from hetsched.errors import Cancelled, HetschedError, UsageError
from hetsched.job import JobReport, JobState

GRACE_SECONDS = 1.0
"""How long a second Ctrl-C, which cancels the job, is waited for; and the number of a job that was
sent just now. Arbitrary: a double press."""


def group() -> Any:
    return workload_flags.group("submit", submit, "Submit one job to the daemon and follow it.")


def submit(
    name: str,
    given: Mapping[str, Any],
    request: Request,
    json: Json = False,
    detach: Annotated[
        bool, typer.Option("--detach", "--no-wait", help="Print the job's number and return.")
    ] = False,
    trace: explanation.Trace = None,
    plot: explanation.Plot = None,
) -> None:
    """Submit the workload `name`; Ctrl-C detaches, a second one cancels."""
    if detach and (trace is not None or plot is not None):
        raise UsageError(
            "--detach doesn't wait for the job: leave out --trace and --plot, and ask"
            " `hetsched explain ID` for them when it has ended"
        )
    explanation.check(trace, plot, request.force)
    with control() as daemon:
        number: Future[int] = Future()
        try:
            job = daemon.start(request.spec(name, given), follow=_first_word(number))
        except KeyboardInterrupt:
            raise _detached(_soon(number), daemon.cancel) from None
        if detach:
            _accepted(job.id, json)
            return
        try:
            state = watch(job)
        except KeyboardInterrupt:
            raise _detached(job.id, daemon.cancel) from None
        explanation.keep(job, state, trace, plot, request.force)
        finish(state, json, lambda report: following(job.id, report))


def following(number: int, report: JobReport) -> str:
    """The last line below a daemon's job: where to go on."""
    keep = "" if report.outputs else f" | hetsched result {number} -o out.npy"
    return f"next: hetsched show {number} | hetsched explain {number}{keep}"


def _accepted(number: int, json: bool) -> None:
    if json:
        out_json({"schema": "hetsched.accepted/1", "job": number})
    else:
        out(f"submitted {number}")


def _first_word(number: Future[int]) -> Callable[[JobState], None]:
    """A listener that notes the job's number as soon as the daemon has taken the job."""

    def heard(state: JobState) -> None:
        if not number.done():
            number.set_result(state.job)

    return heard


def _soon(number: Future[int]) -> int:
    """The number of a job that may have been taken. Raises Cancelled when there is none."""
    try:
        return number.result(GRACE_SECONDS)
    except TimeoutError:
        raise Cancelled(
            "interrupted before the daemon had taken the job;"
            " `hetsched status` shows whether it did after all"
        ) from None


def _detached(number: int, cancel: Callable[[int], None]) -> Cancelled:
    try:
        note(
            f"job {number} goes on: `hetsched wait {number}` follows it,"
            f" `hetsched cancel {number}` or Ctrl-C again stops it"
        )
        time.sleep(GRACE_SECONDS)
    except KeyboardInterrupt:
        with contextlib.suppress(HetschedError):  # nobody to ask, or nothing to end
            cancel(number)
        return Cancelled(f"interrupted twice; job {number} was cancelled")
    return Cancelled(f"interrupted; detached from job {number}, which goes on")
