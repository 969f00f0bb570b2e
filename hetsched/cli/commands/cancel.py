"""`hetsched cancel ID...`: stop jobs."""

from __future__ import annotations

from hetsched.cli.connect import control
from hetsched.cli.output.job_lines import word
from hetsched.cli.output.terminal import out
from hetsched.cli.request_flags import JobNumbers
from hetsched.job import ended


def cancel(jobs: JobNumbers) -> None:
    """Stop jobs after their current chunks."""
    with control() as daemon:
        for number in dict.fromkeys(jobs):
            state = daemon.show(number)
            if ended(state):
                out(f"job {number} has already ended: {word(state)}")
                continue
            daemon.cancel(number)
            out(f"cancelled {number}")
