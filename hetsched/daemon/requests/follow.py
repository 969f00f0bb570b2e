"""Follow: the present state of a job, then each new one until it has ended."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import MOST_FOLLOWED, Asker, Ledger
from hetsched.errors import TryAgain
from hetsched.job import Queued
from hetsched.transport.messages import Follow, State


def handle(ledger: Ledger, asker: Asker, request: Follow, now: float) -> list[Command]:
    """Raises InputMissing, TryAgain."""
    entry = ledger.job(request.job)
    if not entry.over:
        if ledger.follows(asker.session) >= MOST_FOLLOWED:
            raise TryAgain(f"this client follows {MOST_FOLLOWED} jobs already; try again later")
        entry.followers.append(asker)
    return [asker.reply(State(entry.state or Queued(entry.job, 0)))]
