"""CancelAll: stop all jobs that haven't ended."""

from __future__ import annotations

from hetsched.daemon.commands import CancelJob, Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.transport.messages import CancelAll, JobNumbers


def handle(ledger: Ledger, requester: Requester, request: CancelAll, now: float) -> list[Command]:
    """Cancel the newest jobs first, so that none starts because another was cancelled."""
    open_jobs = [entry.job for entry in ledger.tickets.values() if entry.job]
    jobs = sorted(job for job in open_jobs if not ledger.jobs[job].has_ended)
    cancels: list[Command] = [CancelJob(job) for job in reversed(jobs)]
    return [*cancels, requester.reply(JobNumbers(tuple(jobs)))]
