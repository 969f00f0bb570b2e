"""History: jobs of the past, from the journal."""

from __future__ import annotations

from hetsched.daemon.commands import Command, ReadHistory
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.daemon.requests.queue.status import check_states
from hetsched.transport.messages import History


def handle(ledger: Ledger, requester: Requester, request: History, now: float) -> list[Command]:
    """Have the journal asked. Raises UsageError for an unknown state."""
    check_states(request.states)
    return [ReadHistory(requester.identity, requester.number, request)]
