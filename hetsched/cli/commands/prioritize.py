"""`hetsched prioritize ID... N`: change the priority of waiting jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
import typer.main

from hetsched.cli.app import new
from hetsched.cli.connect import control
from hetsched.cli.integer_parser import integers
from hetsched.cli.output.queue_changes import change_each
from hetsched.cli.request_flags import JobNumbers
from hetsched.job import MAX_PRIORITY, MIN_PRIORITY

if TYPE_CHECKING:
    from typer._click import Command


def prioritize(
    jobs: JobNumbers,
    priority: Annotated[
        int,
        typer.Argument(
            metavar="N",
            help="-20 to 19; larger runs first.",
            parser=integers(MIN_PRIORITY, MAX_PRIORITY),
        ),
    ],
) -> None:
    """Change the priority of waiting jobs."""
    with control() as daemon:

        def change(job: int) -> str:
            if daemon.prioritize(job, priority).is_changed:
                return f"priority of {job}: {priority}"
            return f"{job} already has priority {priority}"

        change_each(jobs, change)


def group() -> Command:
    """Make the command; a negative number isn't an option."""
    app = new()
    settings = {"ignore_unknown_options": True}
    app.command("prioritize", context_settings=settings)(prioritize)
    return typer.main.get_command(app)
