"""Show: the present state of one job, in full."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Asker, Ledger
from hetsched.job import Queued
from hetsched.transport.messages import Show, State


def handle(ledger: Ledger, asker: Asker, request: Show, now: float) -> list[Command]:
    """Raises InputMissing."""
    entry = ledger.job(request.job)
    return [asker.reply(State(entry.state or Queued(entry.job, 0)))]
