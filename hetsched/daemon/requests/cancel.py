"""Cancel: stop a job; one that has ended stays as it is."""

from __future__ import annotations

from hetsched.daemon.commands import CancelJob, Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.transport.messages import Acknowledged, Cancel


def handle(ledger: Ledger, requester: Requester, request: Cancel, now: float) -> list[Command]:
    """Cancel a job. Raises InputMissing if it isn't known."""
    entry = ledger.job(request.job)
    answer = requester.reply(Acknowledged())
    return [answer] if entry.has_ended else [CancelJob(entry.job), answer]
