"""What requests that change a waiting job share."""

from __future__ import annotations

from hetsched.daemon.commands import ChangeQueue, Command
from hetsched.daemon.jobs.queue_changes import change_outside_engine
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, Requester
from hetsched.errors import UsageError
from hetsched.job import Done, Failed, Running, words
from hetsched.transport.messages import QueueChange


def change_waiting(
    ledger: Ledger, requester: Requester, change: QueueChange, participle: str
) -> list[Command]:
    """Change a job, or have the engine change it. Raises as `waiting_job`."""
    entry = waiting_job(ledger, change.job, participle)
    if entry.is_outside_engine:
        return change_outside_engine(entry, requester, change)
    return [ChangeQueue(requester.identity, requester.number, change)]


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
    end = entry.state if entry.end is None else entry.end.state  # known, but not on disk yet
    if isinstance(end, Done | Failed):
        word = words(end)[0]
        raise UsageError(
            f"job {number} has already ended: {word}; only a waiting job can be {change}"
        )
    if isinstance(entry.state, Running):
        raise UsageError(f"job {number} is running; only a waiting job can be {change}")
    return entry
