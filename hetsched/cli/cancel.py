"""`hetsched cancel ID...`: stop jobs at a chunk's edge."""

from __future__ import annotations

from hetsched.cli.jobs import word
from hetsched.cli.reach import control
from hetsched.cli.request import JobNumbers
from hetsched.cli.say import out
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
