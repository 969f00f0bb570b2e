"""Follow: the present state of a job, then each new one until it has ended."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.errors import TryAgain
from hetsched.job import Queued
from hetsched.transport.messages import Follow, State
from hetsched.units import counted


def handle(ledger: Ledger, requester: Requester, request: Follow, now: float) -> list[Command]:
    """Add a follower to a job. Raises InputMissing, TryAgain."""
    entry = ledger.job(request.job)
    if not entry.has_ended:
        limit = ledger.limits.followed_jobs
        if ledger.follows[requester.session] >= limit:
            raise TryAgain(
                f"this client already follows {counted(limit, 'job')}, which is the limit"
                " (queue.followers in the config); try again when some have ended"
            )
        ledger.add_follower(entry, requester)
    return [requester.reply(State(entry.state or Queued(entry.job, 0)))]
