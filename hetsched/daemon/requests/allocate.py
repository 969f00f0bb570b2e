"""Allocate: a segment for the client's own arrays."""

from __future__ import annotations

from hetsched.daemon.commands import AllocateSegment, Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import ClientSession
from hetsched.errors import TryAgain
from hetsched.transport.messages import Allocate


def handle(ledger: Ledger, session: ClientSession, request: Allocate) -> list[Command]:
    """Allocate a segment. Raises TryAgain if the daemon is stopping."""
    if ledger.is_draining:
        raise TryAgain("the daemon is stopping; try again when it is back")
    return [AllocateSegment(session.id, request.nbytes)]
