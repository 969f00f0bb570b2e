"""Drain: accept no new jobs, and perhaps stop when the others have ended."""

from __future__ import annotations

from hetsched.daemon.commands import Command, StopDaemon
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.transport.messages import Drain, Draining


def handle(ledger: Ledger, requester: Requester, request: Drain, now: float) -> list[Command]:
    """Close the queue, or open it again."""
    ledger.is_closed = not request.undo
    ledger.stops_when_idle = request.stop and not request.undo
    answer = requester.reply(Draining(ledger.is_closed, ledger.open_jobs()))
    if ledger.is_closed and (request.stop or request.now):
        return [answer, StopDaemon(now=request.now)]
    return [answer]
