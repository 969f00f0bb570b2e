"""Submit: a job for the engine, if its arrays are the client's own."""

from __future__ import annotations

from hetsched.daemon.commands import Command, SubmitJob
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester, input_and_output_segments
from hetsched.errors import DataError, TryAgain
from hetsched.transport.messages import Submit


def handle(ledger: Ledger, requester: Requester, request: Submit, now: float) -> list[Command]:
    """Submit a job. Raises TryAgain if the daemon is stopping, DataError for foreign segments."""
    if ledger.is_draining:
        raise TryAgain("the daemon is stopping and takes no new jobs; try again when it is back")
    held = ledger.sessions[requester.session].held
    for segment in input_and_output_segments(request.spec):
        if segment not in held:
            raise DataError(
                f"segment {segment} isn't this client's;"
                " arrays come from its own empty() or submit()"
            )
    submitted_at = ledger.wall_clock(now)
    entry = ledger.new_entry(request.spec, requester, request.follow, submitted_at)
    return [SubmitJob(entry.ticket, request.spec)]
