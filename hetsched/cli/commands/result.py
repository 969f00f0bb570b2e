"""`hetsched result ID`: fetch what a job computed from the daemon's memory into a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hetsched.cli.connect import client
from hetsched.cli.output.progress import error_of, watch
from hetsched.cli.output.terminal import clean, out, out_json
from hetsched.cli.request_flags import Force, JobNumber, Json, files
from hetsched.errors import UsageError
from hetsched.job import Done, JobReport, ended

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
    """Save a job's result, or say where it is."""
    targets = files("--output", output)
    with client() as daemon:
        found = daemon.job(job)
        state = daemon.show(job)
        if not ended(state):
            state = watch(found, whole=False)
        error = error_of(state)
        if error is not None:
            raise error
        assert isinstance(state, Done)
        where = _save(job, found, state, targets, force) if targets else _where(state)
    if json:
        out_json({"schema": SCHEMA, "job": job, "outputs": where})
        return
    for name, place in where.items():
        out(clean(f"{name}: {place}"))


def _save(
    number: int, job: Any, state: Done, targets: Mapping[str, str], force: bool
) -> dict[str, str]:
    if not state.results:
        raise UsageError(_elsewhere(number, state.report))
    arrays = job.result()
    if not isinstance(arrays, Mapping):
        arrays = {next(iter(state.results)): arrays}
    saved = {}
    for name, path in targets.items():
        chosen = name or _only(number, list(arrays))
        if chosen not in arrays:
            raise UsageError(f"job {number} has no output {chosen!r}; it has {', '.join(arrays)}")
        from hetsched.store.save import save

        save(path, arrays[chosen], force)
        saved[chosen] = path
    return saved


def _only(number: int, names: list[str]) -> str:
    if len(names) != 1:
        raise UsageError(f"job {number} has the outputs {', '.join(names)}: -o NAME=FILE")
    return names[0]


def _elsewhere(number: int, report: JobReport) -> str:
    places = ", ".join(f"{path}" for path in report.outputs.values())
    return f"job {number} has written its result itself, to {places or 'nowhere'}"


def _where(state: Done) -> dict[str, str]:
    """Output name -> path, or what lies in memory."""
    places = dict(state.report.outputs)
    for name, ref in state.results.items():
        shape = "x".join(map(str, ref.shape))
        places[name] = f"{shape} {ref.dtype} in the daemon's memory; -o FILE saves it"
    return places
