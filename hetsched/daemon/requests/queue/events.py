"""Events: the states of several jobs, or of all, as numbered events."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.errors import TryAgain
from hetsched.transport.messages import Events

MAX_WATCHERS = 16
"""Requests for events of one client at once. Arbitrary."""


def handle(ledger: Ledger, requester: Requester, request: Events, now: float) -> list[Command]:
    """Send events from now on. Raises InputMissing for an unknown job, TryAgain."""
    if ledger.watchers.count(requester.session) >= MAX_WATCHERS:
        raise TryAgain(
            f"this client already follows events {MAX_WATCHERS} times, which is the limit;"
            " use one request for several jobs"
        )
    jobs = [ledger.job(number) for number in dict.fromkeys(request.jobs)]
    return ledger.watchers.add(requester, jobs)
