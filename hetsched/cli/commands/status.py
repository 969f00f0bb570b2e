"""`hetsched status`: the daemon's jobs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import asdict

from hetsched.cli.connect import control
from hetsched.cli.integer_parser import integers
from hetsched.cli.output import job_lines
from hetsched.cli.output.job_rows import job_rows, reason, sorted_jobs
from hetsched.cli.output.terminal import clean, is_screen, out, out_json
from hetsched.cli.request_flags import Json, SomeJobNumbers
from hetsched.errors import UsageError
from hetsched.job import STATES
from hetsched.transport.messages import JobLine
from hetsched.units import parse_time

if TYPE_CHECKING:
    from hetsched.client.control import Control

SCHEMA = "hetsched.jobs/1"
CLEAR = "\x1b[H\x1b[2J"
"""Moves the cursor to the top left and clears the screen."""

States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        "-t",
        metavar="A,B",
        help="Only jobs in these states: queued, held, running, done, failed, cancelled.",
    ),
]
Newest = Annotated[
    int | None,
    typer.Option(
        "-n",
        metavar="N",
        parser=integers(1, 1_000_000),
        help="The newest N; default: 20, or all that are named.",
    ),
]
NEWEST = 20


def status(
    jobs: SomeJobNumbers = None,
    state: States = None,
    newest: Newest = None,
    sort: Annotated[
        str,
        typer.Option(metavar="[-]KEY", help="job, priority, state, submitted, workload or label."),
    ] = "job",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="Time between repetitions.")
    ] = "2s",
    json: Json = False,
) -> None:
    """List the daemon's jobs."""
    states = chosen_states(state)
    sorted_jobs((), sort)
    pause = _pause(interval)
    with control() as daemon:
        limit = newest if newest or jobs else NEWEST
        more = None if limit is None else limit + 1  # to see whether there are more
        for lines in _listings(daemon, states, more, jobs or (), pause if watch else None):
            ordered = sorted_jobs(lines if limit is None else lines[-limit:], sort)
            if json:
                out_json({"schema": SCHEMA, "jobs": [entry(job) for job in ordered]})
                continue
            if watch and is_screen():
                sys.stdout.write(CLEAR)
            for line in job_rows(ordered) if ordered else [_no_jobs(states)]:
                out(line)
            if limit is not None and len(lines) > limit and newest is None:
                out(f"the last {limit} jobs; more: hetsched status -n 1000")
            for line in _barred_devices(daemon):
                out(line)
            sys.stdout.flush()


def chosen_states(texts: Sequence[str] | None) -> tuple[str, ...]:
    """Return the states in "queued,running". Raises UsageError."""
    states = tuple(word.strip() for text in texts or () for word in text.split(","))
    for word in states:
        if word not in STATES:
            raise UsageError(f"--state {word!r}: choose from: {', '.join(STATES)}")
    return states


def entry(job: JobLine) -> dict[str, object]:
    """Return a job as it is printed with --json."""
    fields = asdict(job)  # to_builtins would leave out defaults, as messages do
    return {
        **{name: msgspec.to_builtins(value) for name, value in fields.items()},
        "state": job_lines.word(job.state),
        "reason": reason(job),
        "detail": job_lines.detail(job.state),
    }


def _listings(
    daemon: Control,
    states: tuple[str, ...],
    newest: int | None,
    jobs: Sequence[int],
    pause: float | None,
) -> Iterator[tuple[JobLine, ...]]:
    yield daemon.status(states, newest, jobs)
    while pause is not None:
        time.sleep(pause)
        yield daemon.status(states, newest, jobs)


def _barred_devices(daemon: Control) -> list[str]:
    """Return a line for each device that takes no jobs, or none of some kinds, after failures."""
    listed = daemon.device_list()
    names = [info.name for info in listed.devices]
    barred = {**listed.restricted, **listed.absent}
    return [clean(f"{name}: {barred[name]}") for name in names if name in barred]


def _pause(text: str) -> float:
    try:
        seconds = parse_time(text)
    except UsageError as error:
        raise UsageError(f"--interval: {error}") from None
    if not 0.1 <= seconds <= 86400:
        raise UsageError(f"--interval {text}: should be from 100ms to 1d")
    return seconds


def _no_jobs(states: tuple[str, ...]) -> str:
    if states:
        return f"no jobs are {' or '.join(states)}"
    return "no jobs; try: hetsched submit fft --batch 256x512x512"
