"""`hetsched retry ID...`: run ended jobs again."""

from __future__ import annotations

from hetsched.cli.connect import control
from hetsched.cli.output.queue_changes import change_each
from hetsched.cli.request_flags import JobNumbers


def retry(jobs: JobNumbers) -> None:
    """Submit ended jobs again, as new jobs."""
    with control() as daemon:
        change_each(jobs, lambda job: f"submitted {daemon.retry(job)}: job {job} again")
