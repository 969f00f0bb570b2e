"""Drop: the client no longer uses a segment."""

from __future__ import annotations

from hetsched.daemon.commands import Command, ReleaseSegment
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import ClientSession
from hetsched.transport.messages import Drop


def handle(ledger: Ledger, session: ClientSession, request: Drop) -> list[Command]:
    """Release the client's reference, and the job's too if the client submitted it."""
    segment = request.segment
    if not session.drop(segment):
        return []
    commands: list[Command] = [ReleaseSegment(segment)]
    job = ledger.results.job_keeping(segment)
    if job is None or segment in session.held:
        return commands
    job.stop_awaiting(session.id)
    if job.session == session.id:
        # The submitter has received its result, so the next job can use the warm memory.
        commands += ledger.release_result(job, segment)
    return commands
