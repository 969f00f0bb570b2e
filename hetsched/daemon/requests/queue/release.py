"""Release: let a held job start when its turn comes."""

from __future__ import annotations

from hetsched.daemon.commands import ChangeQueue, Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.daemon.requests.queue.waiting_job import waiting_job
from hetsched.transport.messages import Release


def handle(ledger: Ledger, requester: Requester, request: Release, now: float) -> list[Command]:
    """Have the engine change the job. Raises InputMissing, UsageError."""
    waiting_job(ledger, request.job, "released")
    return [ChangeQueue(requester.identity, requester.number, request)]
