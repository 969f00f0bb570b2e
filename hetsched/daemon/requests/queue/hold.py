"""Hold: keep a waiting job from starting."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.daemon.requests.queue.waiting_job import change_waiting
from hetsched.transport.messages import Hold


def handle(ledger: Ledger, requester: Requester, request: Hold, now: float) -> list[Command]:
    """Change the job. Raises InputMissing, UsageError."""
    return change_waiting(ledger, requester, request, "held")
