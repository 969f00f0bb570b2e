"""`hetsched cancel ID...`: stop jobs at a chunk's edge."""

from __future__ import annotations

from hetsched.cli.connect import control
from hetsched.cli.output.job_lines import word
from hetsched.cli.output.terminal import out
from hetsched.cli.request_flags import JobNumbers
from hetsched.job import ended


def cancel(jobs: JobNumbers) -> None:
    """Stop jobs at a chunk's edge; those that have ended stay as they are."""
    with control() as daemon:
        for number in dict.fromkeys(jobs):
            state = daemon.show(number)
            if ended(state):
                out(f"{number} has ended already: {word(state)}")
                continue
            daemon.cancel(number)
            out(f"cancelled {number}")
