"""Explain: what became of a job and why."""

from __future__ import annotations

from hetsched.daemon import commands
from hetsched.daemon.ledger import Asker, Ledger
from hetsched.transport.messages import Explain


def handle(ledger: Ledger, asker: Asker, request: Explain, now: float) -> list[commands.Command]:
    """Raises InputMissing."""
    return [commands.Explain(asker.identity, asker.number, ledger.job(request.job).job)]
