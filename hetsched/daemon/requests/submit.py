"""Submit: a new job, or once more one that the daemon knows by its key."""

from __future__ import annotations

from hetsched.daemon.commands import Command
from hetsched.daemon.jobs.submission import submit_again, submit_new
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import Requester
from hetsched.errors import TryAgain, UsageError
from hetsched.transport.messages import Submit
from hetsched.units import format_seconds


def handle(ledger: Ledger, requester: Requester, request: Submit, now: float) -> list[Command]:
    """Submit a job, or answer for the one with this id or key.

    Raises
    ------
    TryAgain
        The daemon is stopping or draining, or a quota is used up.
    UsageError
        The deadline has passed.
    DataError
        A segment isn't the client's; the id belongs to another request.
    """
    if ledger.is_draining:
        raise TryAgain("the daemon is stopping and takes no new jobs; try again when it is back")
    key = request.spec.id or request.key
    known = ledger.keys.get(key) if key else None
    if known is not None:
        return submit_again(ledger, requester, request, known)
    if ledger.is_closed:
        raise TryAgain(
            "the daemon is draining and takes no new jobs; `hetsched drain --undo` changes that"
        )
    ledger.quota.check(requester.session)
    check_deadline(request.spec.deadline, ledger.wall_clock(now))
    return submit_new(ledger, requester, request, key, now)


def check_deadline(deadline: float | None, now: float) -> None:
    """Raise UsageError for a deadline that has passed; both in seconds since the epoch."""
    if deadline is not None and deadline <= now:
        late = format_seconds(now - deadline)
        raise UsageError(f"deadline: it passed {late} ago; give one in the future")
