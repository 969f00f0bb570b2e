"""Release: let a held job start when its turn comes."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.daemon.requests.queue.waiting_job import change_waiting
from hetsched.transport.messages import Release


def handle(ledger: Ledger, requester: Requester, request: Release, now: float) -> list[Command]:
    """Change the job. Raises InputMissing, UsageError."""
    return change_waiting(ledger, requester, request, "released")
