"""CancelAll: stop all jobs that haven't ended."""

from __future__ import annotations

from hetsched.daemon.commands import CancelJobs, Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.transport.messages import CancelAll, JobNumbers


def handle(ledger: Ledger, requester: Requester, request: CancelAll, now: float) -> list[Command]:
    """Cancel the newest jobs first, so that none starts because another was cancelled."""
    jobs = [
        entry
        for entry in list(ledger.tickets.values())
        if entry.job in ledger.jobs and not entry.has_ended
    ]
    jobs.sort(key=lambda entry: entry.job)
    numbers = tuple(entry.job for entry in jobs)
    return [CancelJobs(numbers[::-1], requester.reply(JobNumbers(numbers)))]
