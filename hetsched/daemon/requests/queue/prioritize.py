"""Prioritize: give a waiting job another priority."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.daemon.requests.queue.waiting_job import change_waiting
from hetsched.transport.messages import Prioritize


def handle(ledger: Ledger, requester: Requester, request: Prioritize, now: float) -> list[Command]:
    """Change the job. Raises InputMissing, UsageError."""
    return change_waiting(ledger, requester, request, "given another priority")
