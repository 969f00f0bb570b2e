"""Clean: forget jobs that have ended."""

from __future__ import annotations

from hetsched.daemon.commands import Command, WriteJournal
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, Requester
from hetsched.daemon.requests.queue.status import check_states
from hetsched.job import words
from hetsched.store.journal.records import JobsForgotten
from hetsched.transport.messages import Clean, JobNumbers


def handle(ledger: Ledger, requester: Requester, request: Clean, now: float) -> list[Command]:
    """Forget the jobs and release their results. Raises UsageError for an unknown state."""
    check_states(request.states)
    latest = ledger.wall_clock(now) - request.older
    jobs = [entry for entry in ledger.jobs.values() if _is_wanted(entry, request, latest)]
    commands: list[Command] = []
    for entry in jobs:
        commands += ledger.forget_ended(entry)
    numbers = tuple(entry.job for entry in jobs)
    if numbers:
        commands.append(WriteJournal((JobsForgotten(numbers),)))
    return [*commands, requester.reply(JobNumbers(numbers))]


def _is_wanted(entry: JobEntry, request: Clean, latest: float) -> bool:
    if not entry.has_ended or entry.state is None:
        return False
    if entry.ended_at is not None and entry.ended_at > latest:
        return False
    return not request.states or bool(set(request.states).intersection(words(entry.state)))
