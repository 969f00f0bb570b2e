"""Adopt: a segment of an earlier daemon, which the client passes to this one."""

from __future__ import annotations

from hetsched.daemon.commands import AdoptSegment, Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import ClientSession
from hetsched.errors import TryAgain
from hetsched.transport.messages import Adopt


def handle(ledger: Ledger, session: ClientSession, request: Adopt) -> list[Command]:
    """Take over the segment that came with the request. Raises TryAgain if stopping."""
    if ledger.is_draining:
        raise TryAgain("the daemon is stopping; try again when it is back")
    return [AdoptSegment(session.id)]
