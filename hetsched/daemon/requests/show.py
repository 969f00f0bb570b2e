"""Show: the present state of one job, in full."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.job import Queued
from hetsched.transport.messages import Show, State


def handle(ledger: Ledger, requester: Requester, request: Show, now: float) -> list[Command]:
    """Answer with a job's state. Raises InputMissing if it isn't known."""
    entry = ledger.job(request.job)
    return [requester.reply(State(entry.state or Queued(entry.job, 0)))]
