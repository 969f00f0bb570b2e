"""Allocate: a segment for the client's own arrays."""

from __future__ import annotations

from hetsched.daemon import commands
from hetsched.daemon.ledger import Ledger, Session
from hetsched.errors import TryAgain
from hetsched.transport.messages import Allocate


def handle(ledger: Ledger, session: Session, request: Allocate) -> list[commands.Command]:
    """Raises TryAgain."""
    if ledger.draining:
        raise TryAgain("the daemon is stopping; try again when it is back")
    return [commands.Allocate(session.id, request.nbytes)]
