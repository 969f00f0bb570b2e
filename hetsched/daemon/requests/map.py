"""Map: a reference to the segment of a kept result, and its fd."""

from __future__ import annotations

from hetsched.daemon.commands import Command, RetainSegment
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import ClientSession
from hetsched.errors import InputMissing
from hetsched.transport.messages import Map
from hetsched.units import format_seconds


def handle(ledger: Ledger, session: ClientSession, request: Map) -> list[Command]:
    """Give the client a reference. Raises InputMissing if the result is no longer kept."""
    segment = request.segment
    if segment not in session.held and ledger.results.job_keeping(segment) is None:
        raise InputMissing(
            "the result is no longer in the daemon's memory, which keeps it for"
            f" {format_seconds(ledger.limits.results_for)}, or less when others need the room;"
            " run the job again: hetsched retry"
        )
    return [RetainSegment(segment), ledger.grant_segment(session, segment)]
