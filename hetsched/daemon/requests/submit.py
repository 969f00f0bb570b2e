"""Submit: a job for the engine, if its arrays are the client's own."""

from __future__ import annotations

from hetsched.daemon.commands import Command, SubmitJob
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester, input_and_output_segments
from hetsched.errors import DataError, TryAgain, UsageError
from hetsched.queue_options import check_queue_options
from hetsched.transport.messages import Submit
from hetsched.units import format_seconds


def handle(ledger: Ledger, requester: Requester, request: Submit, now: float) -> list[Command]:
    """Submit a job.

    Raises
    ------
    TryAgain
        The daemon is stopping or draining, or a quota is used up.
    UsageError
        An option of the queue is out of range, or the deadline has passed.
    DataError
        A segment isn't the client's.
    """
    if ledger.is_draining:
        raise TryAgain("the daemon is stopping and takes no new jobs; try again when it is back")
    if ledger.is_closed:
        raise TryAgain(
            "the daemon is draining and takes no new jobs; `hetsched drain --undo` changes that"
        )
    ledger.quota.check(requester.session)
    held = ledger.sessions[requester.session].held
    for segment in input_and_output_segments(request.spec):
        if segment not in held:
            raise DataError(
                f"segment {segment} isn't this client's;"
                " arrays come from its own empty() or submit()"
            )
    submitted_at = ledger.wall_clock(now)
    check_queue_options(request.spec)
    if request.spec.deadline is not None and request.spec.deadline <= submitted_at:
        late = format_seconds(submitted_at - request.spec.deadline)
        raise UsageError(f"deadline: it passed {late} ago; give one in the future")
    entry = ledger.new_entry(request.spec, requester, request.follow, submitted_at)
    return [SubmitJob(entry.ticket, request.spec)]
