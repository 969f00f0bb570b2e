"""Prioritize: give a waiting job another priority."""

from __future__ import annotations

from hetsched.daemon.commands import ChangeQueue, Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.daemon.requests.queue.waiting_job import waiting_job
from hetsched.queue_options import MAX_PRIORITY, MIN_PRIORITY, check_number
from hetsched.transport.messages import Prioritize


def handle(ledger: Ledger, requester: Requester, request: Prioritize, now: float) -> list[Command]:
    """Have the engine change the job. Raises InputMissing, UsageError."""
    check_number("priority", request.priority, MIN_PRIORITY, MAX_PRIORITY)
    waiting_job(ledger, request.job, "given another priority")
    return [ChangeQueue(requester.identity, requester.number, request)]
