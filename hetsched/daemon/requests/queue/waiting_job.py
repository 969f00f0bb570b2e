"""The check that a job still waits, which requests that change it share."""

from __future__ import annotations

from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry
from hetsched.errors import UsageError
from hetsched.job import Running, words


def waiting_job(ledger: Ledger, number: int, change: str) -> JobEntry:
    """Return a job that waits.

    Raises
    ------
    InputMissing
        It isn't known.
    UsageError
        It runs or has ended, so that it can't be `change`.
    """
    entry = ledger.job(number)
    if entry.has_ended and entry.state is not None:
        word = words(entry.state)[0]
        raise UsageError(
            f"job {number} has already ended: {word}; only a waiting job can be {change}"
        )
    if isinstance(entry.state, Running):
        raise UsageError(f"job {number} is running; only a waiting job can be {change}")
    return entry
