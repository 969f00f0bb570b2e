"""Map: a reference to the segment of a kept result, and its fd."""

from __future__ import annotations

from hetsched.daemon.commands import Command, RetainSegment
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import ClientSession
from hetsched.errors import InputMissing
from hetsched.transport.messages import Map


def handle(ledger: Ledger, session: ClientSession, request: Map) -> list[Command]:
    """Give the client a reference. Raises InputMissing if the result is no longer kept."""
    segment = request.segment
    if segment not in session.held and ledger.results.job_keeping(segment) is None:
        raise InputMissing(
            f"segment {segment} is no longer kept: results are kept for"
            f" {ledger.limits.results_for:g} s, or until others need the memory; rerun the job"
        )
    return [RetainSegment(segment), ledger.grant_segment(session, segment)]
