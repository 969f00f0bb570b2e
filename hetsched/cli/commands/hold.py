"""`hetsched hold ID...`: keep waiting jobs from starting."""

from __future__ import annotations

from hetsched.cli.connect import control
from hetsched.cli.output.queue_changes import change_each
from hetsched.cli.request_flags import JobNumbers


def hold(jobs: JobNumbers) -> None:
    """Keep waiting jobs from starting."""
    with control() as daemon:

        def change(job: int) -> str:
            return f"held {job}" if daemon.hold(job).is_changed else f"{job} is already held"

        change_each(jobs, change)
