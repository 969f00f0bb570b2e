"""Hold: keep a waiting job from starting."""

from __future__ import annotations

from hetsched.daemon.commands import ChangeQueue, Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.daemon.requests.queue.waiting_job import waiting_job
from hetsched.transport.messages import Hold


def handle(ledger: Ledger, requester: Requester, request: Hold, now: float) -> list[Command]:
    """Have the engine change the job. Raises InputMissing, UsageError."""
    waiting_job(ledger, request.job, "held")
    return [ChangeQueue(requester.identity, requester.number, request)]
