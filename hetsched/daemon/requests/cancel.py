"""Cancel: stop a job; one that has ended stays as it is."""

from __future__ import annotations

from hetsched.daemon.commands import CancelJob, Command
from hetsched.daemon.jobs.queue_changes import cancelled
from hetsched.daemon.jobs.transitions import JobTransitions
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, Requester
from hetsched.transport.messages import Acknowledged, Cancel


def handle(ledger: Ledger, requester: Requester, request: Cancel, now: float) -> list[Command]:
    """Cancel a job. Raises InputMissing if it isn't known."""
    entry = ledger.job(request.job)
    return [*cancel_job(ledger, entry, now), requester.reply(Acknowledged())]


def cancel_job(ledger: Ledger, entry: JobEntry, now: float) -> list[Command]:
    """Return the commands that cancel a job; none if it has ended."""
    if entry.has_ended:
        return []
    if entry.input_deadline is not None:  # it isn't in the engine
        return cancel_awaiting(ledger, entry, now)
    entry.is_cancelled = entry.is_outside_engine  # then it ends as soon as the engine has it
    return [CancelJob(entry.job)]


def cancel_awaiting(ledger: Ledger, entry: JobEntry, now: float) -> list[Command]:
    """Cancel a job of an earlier daemon that waits for its client to pass its arrays."""
    entry.input_deadline = None
    del ledger.awaiting_input[entry.ticket]
    return JobTransitions(ledger).fail(entry, cancelled(entry), now)
