"""What requests that change a waiting job share."""

from __future__ import annotations

from hetsched.daemon.commands import ChangeQueue, Command
from hetsched.daemon.jobs.queue_changes import change_outside_engine
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, Requester
from hetsched.errors import UsageError
from hetsched.job import Running, words
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
    if entry.has_ended and entry.state is not None:
        word = words(entry.state)[0]
        raise UsageError(
            f"job {number} has already ended: {word}; only a waiting job can be {change}"
        )
    if isinstance(entry.state, Running):
        raise UsageError(f"job {number} is running; only a waiting job can be {change}")
    return entry
