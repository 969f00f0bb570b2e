"""Map: the fd of a segment that a kept result lives in, and a reference to it."""

from __future__ import annotations

from hetsched.daemon.commands import Command, Retain
from hetsched.daemon.ledger import Ledger, Session
from hetsched.errors import InputMissing
from hetsched.transport.messages import Map


def handle(ledger: Ledger, session: Session, request: Map) -> list[Command]:
    """Raises InputMissing."""
    segment = request.segment
    if segment not in session.held and ledger.keeper(segment) is None:
        raise InputMissing(
            f"segment {segment} is gone: results are kept for"
            f" {ledger.limits.results_for:g} s and until others need the room; run the job again"
        )
    return [Retain(segment), ledger.hand_over(session, segment)]
