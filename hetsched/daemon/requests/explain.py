"""Explain: a job's split, timing and alternatives."""

from __future__ import annotations

from hetsched.daemon.commands import Command, ExplainJob
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.transport.messages import Explain


def handle(ledger: Ledger, requester: Requester, request: Explain, now: float) -> list[Command]:
    """Have the engine explain a job. Raises InputMissing if it isn't known."""
    return [ExplainJob(requester.identity, requester.number, ledger.job(request.job).job)]
