"""Follow: the present state of a job, then each new one until it has ended."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.errors import TryAgain
from hetsched.job import Queued
from hetsched.transport.messages import Follow, State

MAX_FOLLOWED_JOBS = 1000
"""Of one session at once. Arbitrary."""


def handle(ledger: Ledger, requester: Requester, request: Follow, now: float) -> list[Command]:
    """Add a follower to a job. Raises InputMissing, TryAgain."""
    entry = ledger.job(request.job)
    if not entry.has_ended:
        if ledger.follows[requester.session] >= MAX_FOLLOWED_JOBS:
            raise TryAgain(
                f"this client already follows {MAX_FOLLOWED_JOBS} jobs; try again later"
            )
        ledger.add_follower(entry, requester)
    return [requester.reply(State(entry.state or Queued(entry.job, 0)))]
