"""Drop: the client lets go of a segment. What its own job kept for it is then free too."""

from __future__ import annotations

from hetsched.daemon.commands import Command, Release
from hetsched.daemon.ledger import Ledger, Session
from hetsched.transport.messages import Drop


def handle(ledger: Ledger, session: Session, request: Drop) -> list[Command]:
    segment = request.segment
    if not session.drop(segment):
        return []
    released: list[Command] = [Release(segment)]
    keeper = ledger.keeper(segment)
    if keeper is None or segment in session.held:
        return released
    keeper.await_no_longer(session.id)
    if keeper.asker.session == session.id:
        # Whoever submitted the job has had its result: the memory serves the next one warm.
        released += ledger.let_go_of(keeper, segment)
    return released
