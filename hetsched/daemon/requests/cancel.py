"""Cancel: end a job; a running one ends at a chunk's edge. One that has ended stays as it is."""

from __future__ import annotations

from hetsched.daemon.commands import Command, Stop
from hetsched.daemon.ledger import Asker, Ledger
from hetsched.transport.messages import Cancel, Done


def handle(ledger: Ledger, asker: Asker, request: Cancel, now: float) -> list[Command]:
    """Raises InputMissing."""
    entry = ledger.job(request.job)
    answer = asker.reply(Done())
    return [answer] if entry.over else [Stop(entry.job), answer]
