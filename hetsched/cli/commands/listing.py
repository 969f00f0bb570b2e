"""`hetsched status`, `history`, `show` and `result`: jobs of the daemon, and what they left."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from hetsched.cli import flags, interrupts
from hetsched.cli.flags import Force, JobNumber, Json, SomeJobNumbers, States, option, switch
from hetsched.cli.jobs import (
    DATE,
    error_of,
    event_detail,
    job_record,
    options,
    parameters,
    print_jobs,
    summary,
    table,
    word,
)
from hetsched.cli.progress import watch
from hetsched.cli.terminal import can_move_cursor, out, out_json, out_lines
from hetsched.client.control import Control
from hetsched.errors import InputMissing, JobFailed, UsageError
from hetsched.job import SCHEMA, Done, Ended, Failed, JobState, Queued
from hetsched.transport.messages import JobLine
from hetsched.units import parse_time

if TYPE_CHECKING:
    from hetsched.client.job import Job

CLEAR = "\x1b[H\x1b[2J"  # Moves the cursor to the top left and clears the screen
NEWEST = 20
SORT_KEYS = ("job", "priority", "state", "submitted", "workload", "label")


def sort_key(text: str) -> str:
    if text.removeprefix("-") not in SORT_KEYS:
        keys = ", ".join(SORT_KEYS)
        raise UsageError(f"{text!r}: choose from: {keys}; with - before it descending")
    return text


def pause(text: str) -> float:
    seconds = parse_time(text)
    if not 0.1 <= seconds <= 86400:
        raise UsageError(f"{text}: should be from 100ms to 1d")
    return seconds


def status(
    jobs: SomeJobNumbers = None,
    state: States = None,
    newest: flags.Newest = None,
    sort: Annotated[str, option("[-]KEY", f"{', '.join(SORT_KEYS)}.", sort_key)] = "job",
    repeat: Annotated[bool, switch("Repeat until Ctrl-C.", "--watch", "-w")] = False,
    interval: Annotated[
        float, option("TIME", "Time between repetitions.", pause, shown="2s")
    ] = 2.0,
    json: Json = False,
) -> None:
    states = flags.joined(state)
    limit = newest if newest or jobs else NEWEST
    more = None if limit is None else limit + 1  # to see whether there are more
    with Control() as daemon:
        while True:
            lines = daemon.status(states, more, jobs or ())
            shown = _sorted(lines if limit is None else lines[-limit:], sort)
            if json:
                out_json({"schema": "hetsched.jobs/1", "jobs": list(map(job_record, shown))})
            else:
                if repeat and sys.stdout.isatty() and can_move_cursor():
                    sys.stdout.write(CLEAR)
                if shown:
                    print_jobs(shown, "%H:%M:%S")
                else:
                    hint = "no jobs; try: hetsched submit fft --batch 256x512x512"
                    out(f"no jobs are {' or '.join(states)}" if states else hint)
                if limit is not None and len(lines) > limit and newest is None:
                    out(f"the last {limit} jobs; more: hetsched status -n 1000")
                out_lines(_barred_devices(daemon))
            if not repeat:
                return
            sys.stdout.flush()
            time.sleep(interval)
            interrupts.reraise()


def _sorted(lines: tuple[JobLine, ...], sort: str) -> list[JobLine]:
    def value(job: JobLine) -> Any:
        match sort.removeprefix("-"):
            case "state":
                return word(job.state)
            case "submitted":
                return job.submitted_at
            case name:
                return getattr(job, name)

    return sorted(lines, key=value, reverse=sort.startswith("-"))


def _barred_devices(daemon: Control) -> list[str]:
    """Return a line for each device that takes no jobs, or none of some kinds, after failures."""
    listed = daemon.device_list()
    barred = {**listed.restricted, **listed.absent}
    return [f"{each.name}: {barred[each.name]}" for each in listed.devices if each.name in barred]


def history(
    state: States = None,
    since: Annotated[
        float | None,
        option("TIME", "Submitted since: 7d, 2026-11-20.", flags.past, "--since", "-S"),
    ] = None,
    newest: flags.Newest = 100,
    json: Json = False,
) -> None:
    with Control() as daemon:
        jobs = daemon.history(flags.joined(state), since, newest or 100)
    if json:
        out_json({"schema": "hetsched.history/1", "jobs": list(map(job_record, jobs))})
    elif jobs:
        print_jobs(jobs, DATE)
    else:
        out("no such jobs")


def show(job: JobNumber, json: Json = False) -> None:
    with Control() as daemon:
        state: JobState = daemon.show(job)
        (entry,) = daemon.status(jobs=[job])
    if isinstance(state, Queued) and isinstance(entry.state, Queued):
        state = entry.state  # with its present position
    if json:
        out_json(state.report if isinstance(state, Ended) else _state_record(state))
        return
    out(f"job {job}  {word(state)}  {event_detail(state)}".rstrip())
    out_lines(options(entry))
    if isinstance(state, Failed):
        out_lines(state.error.frames.splitlines())
    if isinstance(state, Ended):
        report = state.report
        if report.params:
            out(f"{report.workload}  {parameters(report.params)}")
        if report.devices:
            out_lines([*table(report), *summary(report, with_reasons=True)])


def _state_record(state: JobState) -> Mapping[str, object]:
    """Return the state as JSON, fields by default, too."""
    import msgspec

    fields = msgspec.to_builtins(msgspec.structs.asdict(state))
    return {**fields, **msgspec.to_builtins(state), "schema": SCHEMA, "state": word(state)}


def result(
    job: JobNumber,
    output: Annotated[
        list[Any] | None,
        option("[NAME=]FILE", "Save as .npy.", flags.new_array_file, "--output", "-o"),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    targets = flags.by_array("--output", output)
    from hetsched.client.client import Client

    with Client() as daemon:
        future = daemon.job(job)
        state = daemon.show(job)
        if not isinstance(state, Ended):
            state = watch(future, from_start=False)
        error = error_of(state)
        assert isinstance(state, Ended)
        # One that has failed only because it hasn't converged has a result.
        if error is not None and not (state.results or state.report.outputs):
            raise error
        if isinstance(state, Done) and state.lost:
            raise InputMissing(state.lost)
        outputs = _save(future, state, targets, force) if targets else _locations(future, state)
    if json:
        out_json({"schema": "hetsched.result/1", "job": job, "outputs": outputs})
    else:
        out_lines([f"{name}: {location}" for name, location in outputs.items()])
    if error is not None:
        raise error


def _arrays(job: Job, state: Ended) -> Any:
    """Return the outputs. Raises the job's error, or InputMissing, if there are none any more."""
    error = job.exception() if isinstance(state, Failed) else None
    reached = error.result if isinstance(error, JobFailed) else None
    return job.result() if reached is None else reached


def _save(job: Job, state: Ended, targets: Mapping[str, str], force: bool) -> dict[str, str]:
    """Save the outputs that `targets` names; return output name -> path."""
    if not state.results:
        files = ", ".join(state.report.outputs.values())
        saved = f"already saved its result: {files}" if files else "has no result"
        raise UsageError(f"job {job.id} {saved}")
    arrays = _arrays(job, state)
    if not isinstance(arrays, Mapping):
        arrays = {next(iter(state.results)): arrays}
    written = {}
    for target, path in targets.items():
        names = ", ".join(arrays)
        if not target and len(arrays) > 1:
            raise UsageError(f"job {job.id} has several outputs: {names}; use -o NAME=FILE")
        name = target or names
        if name not in arrays:
            raise UsageError(f"job {job.id} has no output {name!r}; it has {names}")
        from hetsched.store.output_files import save_array

        save_array(path, arrays[name], force)
        written[name] = path
    return written


def _locations(job: Job, state: Ended) -> dict[str, str]:
    """Return output name -> path, or a description of the array in memory.

    Raises InputMissing (an array isn't in memory any more).
    """
    if state.results:
        _arrays(job, state)
    locations = dict(state.report.outputs)
    for name, ref in state.results.items():
        shape = "x".join(map(str, ref.shape))
        locations[name] = f"{shape} {ref.dtype} in the daemon's memory; save it with -o FILE"
    return locations
