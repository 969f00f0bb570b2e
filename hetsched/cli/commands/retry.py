"""`hetsched retry ID...`: run ended jobs again."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched.cli.connect import control
from hetsched.cli.output.queue_changes import change_each
from hetsched.cli.request_flags import Force, JobNumbers


def retry(
    jobs: JobNumbers,
    force: Force = False,
    parsable: Annotated[
        bool, typer.Option("--parsable", help="Print nothing but the new job numbers.")
    ] = False,
) -> None:
    """Submit ended jobs again, as new jobs."""
    with control() as daemon:

        def submit_again(job: int) -> str:
            number = daemon.retry(job, force=force)
            return str(number) if parsable else f"submitted {number}: job {job} again"

        change_each(jobs, submit_again)
