"""Submit: a job for the engine, if the queue has room and its arrays are its client's."""

from __future__ import annotations

from hetsched.daemon.commands import Command, Start
from hetsched.daemon.ledger import Asker, Ledger, segments_of
from hetsched.errors import DataError, TryAgain
from hetsched.transport.messages import Submit


def handle(ledger: Ledger, asker: Asker, request: Submit, now: float) -> list[Command]:
    """Raises TryAgain, DataError."""
    _admit(ledger)
    held = ledger.sessions[asker.session].held
    for segment in segments_of(request.spec):
        if segment not in held:
            raise DataError(
                f"segment {segment} isn't this client's;"
                " arrays come from its own empty() or submit()"
            )
    entry = ledger.new_entry(request.spec, asker, request.follow, ledger.wall_clock(now))
    return [Start(entry.ticket, request.spec)]


def _admit(ledger: Ledger) -> None:
    if ledger.draining:
        raise TryAgain("the daemon is stopping and takes no new jobs; try again when it is back")
    limit = ledger.limits.queue
    if ledger.open_jobs() >= limit:
        raise TryAgain(
            f"the queue is full: {limit} jobs wait or run (queue.limit in the config);"
            " try again later"
        )
