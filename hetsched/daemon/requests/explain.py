"""Explain: a job's split, timing and alternatives."""

from __future__ import annotations

from hetsched.daemon.commands import Command, ExplainJob
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.errors import InputMissing
from hetsched.transport.messages import Explain


def handle(ledger: Ledger, requester: Requester, request: Explain, now: float) -> list[Command]:
    """Have the engine explain a job. Raises InputMissing if it isn't known, or not kept."""
    entry = ledger.job(request.job)
    if entry.is_readmitted and entry.has_ended:
        raise InputMissing(
            f"job {entry.job} was accepted by an earlier daemon; its explanation isn't kept"
        )
    return [ExplainJob(requester.identity, requester.number, entry.job)]
