"""`hetsched history`: past jobs."""

from __future__ import annotations

import datetime
import time
from typing import Annotated

import typer

from hetsched.cli.commands.status import chosen_states, entry
from hetsched.cli.connect import control
from hetsched.cli.integer_parser import integers
from hetsched.cli.output import job_lines
from hetsched.cli.output.job_rows import reason
from hetsched.cli.output.terminal import columns, out, out_json
from hetsched.cli.request_flags import Json
from hetsched.cli.time_parser import parse_since
from hetsched.transport.messages import JobLine

SCHEMA = "hetsched.history/1"


def history(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", metavar="A,B", help="Only jobs in these states."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", "-S", metavar="TIME", help="Submitted since: 7d, 2026-11-20."),
    ] = None,
    newest: Annotated[
        int, typer.Option("-n", metavar="N", parser=integers(1, 1_000_000), help="The newest N.")
    ] = 100,
    json: Json = False,
) -> None:
    """List past jobs, including those of earlier daemons."""
    states = chosen_states(state)
    now = datetime.datetime.now().astimezone()
    start = None if since is None else parse_since(since, now, "--since")
    with control() as daemon:
        jobs = daemon.history(states, start, newest)
    if json:
        out_json({"schema": SCHEMA, "jobs": [entry(job) for job in jobs]})
        return
    if not jobs:
        out("no such jobs")
        return
    header = (
        *("job", "workload", "parameters", "state", "label", "submitted"),
        *("whole time", "kernels' time", "reason"),
    )
    for line in columns(header, [_row(job) for job in jobs], left_columns=len(header)):
        out(line)


def _row(job: JobLine) -> tuple[str, ...]:
    submitted = time.localtime(job.submitted_at)
    return (
        str(job.job),
        job.workload,
        job_lines.parameters(job.params, job.shapes),
        job_lines.word(job.state),
        job.label,
        time.strftime("%Y-%m-%d %H:%M:%S", submitted),
        job_lines.whole_time(job),
        job_lines.kernels_time(job),
        reason(job),
    )
