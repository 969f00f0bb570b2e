"""`hetsched cancel ID...`: stop jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from hetsched.cli.connect import control
from hetsched.cli.output.job_lines import word
from hetsched.cli.output.queue_changes import change_each
from hetsched.cli.output.terminal import out
from hetsched.cli.request_flags import SomeJobNumbers
from hetsched.errors import UsageError
from hetsched.job import Ended


def cancel(
    jobs: SomeJobNumbers = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Stop all jobs that haven't ended.")
    ] = False,
) -> None:
    """Stop jobs after their current chunks."""
    if bool(jobs) == everything:
        raise UsageError("give the numbers of jobs, or --all for all of them")
    with control() as daemon:

        def change(job: int) -> str:
            state = daemon.show(job)
            if isinstance(state, Ended):
                return f"job {job} has already ended: {word(state)}"
            daemon.cancel(job)
            return f"cancelled {job}"

        if not everything:
            change_each(jobs or (), change)
            return
        cancelled = daemon.cancel_all()
    for job in cancelled:
        out(f"cancelled {job}")
    if not cancelled:
        out("no jobs to cancel")
