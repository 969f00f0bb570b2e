"""`hetsched clean`: forget jobs that have ended."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched.cli.commands.status import chosen_states
from hetsched.cli.connect import control
from hetsched.cli.output.terminal import out, out_json
from hetsched.cli.request_flags import Json
from hetsched.errors import UsageError
from hetsched.units import counted, parse_time

SCHEMA = "hetsched.forgotten/1"
ENDED_STATES = ("done", "failed", "cancelled")


def clean(
    older: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only jobs that ended at least this long ago: 7d."),
    ] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", metavar="A,B", help="Only: done, failed, cancelled."),
    ] = None,
    json: Json = False,
) -> None:
    """Forget jobs that have ended, and their results in memory."""
    states = chosen_states(state)
    for word in states:
        if word not in ENDED_STATES:
            raise UsageError(f"--state {word}: only jobs that have ended can be forgotten")
    with control() as daemon:
        jobs = daemon.clean(states, 0.0 if older is None else _seconds(older))
    if json:
        out_json({"schema": SCHEMA, "jobs": jobs})
    else:
        out(f"forgot {counted(len(jobs), 'job')}")


def _seconds(text: str) -> float:
    try:
        return parse_time(text)
    except UsageError as error:
        raise UsageError(f"--older: {error}") from None
