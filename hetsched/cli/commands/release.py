"""`hetsched release ID...`: let held jobs start."""

from __future__ import annotations

from hetsched.cli.connect import control
from hetsched.cli.output.queue_changes import change_each
from hetsched.cli.request_flags import JobNumbers


def release(jobs: JobNumbers) -> None:
    """Let held jobs start when their turn comes."""
    with control() as daemon:

        def change(job: int) -> str:
            return f"released {job}" if daemon.release(job).is_changed else f"{job} isn't held"

        change_each(jobs, change)
