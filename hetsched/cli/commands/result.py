"""`hetsched result ID`: save a result from the daemon's memory to a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetsched.cli.connect import client
from hetsched.cli.output.progress import error_of, watch
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.cli.request_flags import Force, JobNumber, Json, paths_by_array
from hetsched.errors import InputMissing, JobFailed, UsageError
from hetsched.job import Done, Ended, Failed, JobReport, JobState

if TYPE_CHECKING:
    from hetsched.client.job import Job

SCHEMA = "hetsched.result/1"


def result(
    job: JobNumber,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="[NAME=]FILE", help="Save as .npy."),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Save a job's result, or show where it is.

    Of an iterative job without convergence that is what it has reached; the exit code is 1.
    """
    targets = paths_by_array("--output", output)
    with client() as daemon:
        future = daemon.job(job)
        state = daemon.show(job)
        if not isinstance(state, Ended):
            state = watch(future, from_start=False)
        error = error_of(state)
        if error is not None and not _has_result(state):
            raise error
        assert isinstance(state, Ended)
        if isinstance(state, Done) and state.lost:
            raise InputMissing(state.lost)
        locations = _save(future, state, targets, force) if targets else _locations(future, state)
    if json:
        out_json({"schema": SCHEMA, "job": job, "outputs": locations})
    else:
        for name, location in locations.items():
            out(clean(f"{name}: {location}"))
    if error is not None:
        raise error


def _has_result(state: JobState) -> bool:
    """Whether a job has failed only because it hasn't converged."""
    return isinstance(state, Failed) and bool(state.results or state.report.outputs)


def _arrays(job: Job, state: Ended) -> Any:
    """Return the outputs. Raises the job's error, or InputMissing, if there are none any more."""
    error = job.exception() if isinstance(state, Failed) else None
    reached = error.result if isinstance(error, JobFailed) else None
    return job.result() if reached is None else reached


def _save(job: Job, state: Ended, targets: Mapping[str, str], force: bool) -> dict[str, str]:
    """Save the outputs that `targets` names; return output name -> path."""
    if not state.results:
        raise UsageError(_already_saved(job.id, state.report))
    arrays = _arrays(job, state)
    if not isinstance(arrays, Mapping):
        arrays = {next(iter(state.results)): arrays}
    saved = {}
    for target, path in targets.items():
        name = target or _only_output(job.id, list(arrays))
        if name not in arrays:
            raise UsageError(f"job {job.id} has no output {name!r}; it has {', '.join(arrays)}")
        from hetsched.store.output_files import save_array

        save_array(path, arrays[name], force)
        saved[name] = path
    return saved


def _only_output(job: int, names: list[str]) -> str:
    if len(names) != 1:
        raise UsageError(f"job {job} has several outputs: {', '.join(names)}; use -o NAME=FILE")
    return names[0]


def _already_saved(job: int, report: JobReport) -> str:
    files = ", ".join(report.outputs.values())
    return f"job {job} already saved its result: {files}" if files else f"job {job} has no result"


def _locations(job: Job, state: Ended) -> dict[str, str]:
    """Return output name -> path, or a description of the array in memory.

    Raises
    ------
    InputMissing
        An array isn't in memory any more.
    """
    if state.results:
        _arrays(job, state)
    locations = dict(state.report.outputs)
    for name, ref in state.results.items():
        shape = "x".join(map(str, ref.shape))
        locations[name] = f"{shape} {ref.dtype} in the daemon's memory; save it with -o FILE"
    return locations
