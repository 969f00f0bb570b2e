"""`hetsched wait ID...`: until all these jobs have ended."""

from __future__ import annotations

import concurrent.futures
from typing import Annotated, Any

import typer

from hetsched.cli.connect import control
from hetsched.cli.output.progress import error_of, watch
from hetsched.cli.output.terminal import out_json
from hetsched.cli.request_flags import JobNumbers, Json
from hetsched.errors import HetschedError, UsageError, WaitTimeout
from hetsched.job import Done, Failed
from hetsched.units import parse_time


def wait(
    jobs: JobNumbers,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give up after so long, as 5m (124).")
    ] = None,
    json: Json = False,
) -> None:
    """Wait until all these jobs have ended; the exit code is the first failed one's."""
    patience = None if timeout is None else _seconds(timeout)
    with control() as daemon:
        waited = [daemon.job(number) for number in dict.fromkeys(jobs)]
        if patience is not None:
            _within(waited, patience, timeout or "")
        errors = [_outcome(job, json) for job in waited]
    for error in errors:
        if error is not None:
            raise error


def _seconds(text: str) -> float:
    try:
        return parse_time(text)
    except UsageError as error:
        raise UsageError(f"--timeout: {error}") from None


def _within(waited: list[Any], patience: float, text: str) -> None:
    """Raises WaitTimeout with those that haven't ended; they go on."""
    _, pending = concurrent.futures.wait(waited, timeout=patience)
    if pending:
        numbers = ", ".join(str(job.id) for job in waited if job in pending)
        raise WaitTimeout(f"after {text}: job {numbers} hasn't ended; it goes on")


def _outcome(job: Any, json: bool) -> HetschedError | None:
    state = watch(job, whole=False)
    if json and isinstance(state, Done | Failed):
        out_json(state.report)
    return error_of(state)
