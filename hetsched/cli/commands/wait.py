"""`hetsched wait ID...`: wait until all these jobs have ended."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Annotated

import typer

from hetsched.cli.connect import control
from hetsched.cli.output.progress import error_of, watch
from hetsched.cli.output.terminal import out_json
from hetsched.cli.request_flags import JobNumbers, Json
from hetsched.errors import HetschedError, UsageError, WaitTimeout
from hetsched.job import Ended
from hetsched.units import parse_time

if TYPE_CHECKING:
    from hetsched.client.job import Job


def wait(
    jobs: JobNumbers,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give up after e.g. 5m (exit code 124).")
    ] = None,
    json: Json = False,
) -> None:
    """Wait for jobs; exit with the code of the first that failed."""
    seconds = None if timeout is None else _seconds(timeout)
    with control() as daemon:
        futures = [daemon.job(number) for number in dict.fromkeys(jobs)]
        if seconds is not None:
            _wait_all(futures, seconds, timeout or "")
        errors = [_outcome(job, json) for job in futures]
    for error in errors:
        if error is not None:
            raise error


def _seconds(text: str) -> float:
    try:
        return parse_time(text)
    except UsageError as error:
        raise UsageError(f"--timeout: {error}") from None


def _wait_all(jobs: list[Job], seconds: float, text: str) -> None:
    """Raise WaitTimeout if a job hasn't ended in time."""
    _, pending = concurrent.futures.wait(jobs, timeout=seconds)
    if not pending:
        return
    numbers = ", ".join(str(job.id) for job in jobs if job in pending)
    if len(pending) == 1:
        raise WaitTimeout(f"after {text}: job {numbers} hasn't ended; it continues")
    raise WaitTimeout(f"after {text}: jobs {numbers} haven't ended; they continue")


def _outcome(job: Job, json: bool) -> HetschedError | None:
    state = watch(job, from_start=False)
    if json and isinstance(state, Ended):
        out_json(state.report)
    return error_of(state)
