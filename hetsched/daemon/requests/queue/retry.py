"""Retry: submit an ended job again, as a new job."""

from __future__ import annotations

from msgspec.structs import replace

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, Requester, input_and_output_segments
from hetsched.daemon.requests import submit
from hetsched.errors import InputMissing, UsageError
from hetsched.job import FileOut, JobSpec
from hetsched.transport.messages import Retry, Submit


def handle(ledger: Ledger, requester: Requester, request: Retry, now: float) -> list[Command]:
    """Submit the job again, without its id and what it was to run after.

    Raises
    ------
    InputMissing
        It isn't known, or what it needs is gone.
    UsageError
        It hasn't ended.
    TryAgain
        There is no room in the queue.
    """
    entry = ledger.job(request.job)
    is_ending = entry.end is not None  # known, but not on disk yet
    if not entry.has_ended and not is_ending:
        raise UsageError(f"job {entry.job} hasn't ended; only an ended job can be run again")
    if entry.is_shortened:
        raise InputMissing(
            f"job {entry.job}: its parameters were dropped to save memory; submit it again"
        )
    _check_arrays(ledger, requester, entry)
    spec = _renewed(entry, ledger.wall_clock(now), is_forced=request.force)
    return submit.handle(ledger, requester, Submit(spec, follow=False, key=request.key), now)


def _check_arrays(ledger: Ledger, requester: Requester, entry: JobEntry) -> None:
    held = ledger.sessions[requester.session].held
    if any(segment not in held for segment in input_and_output_segments(entry.spec)):
        raise InputMissing(
            f"job {entry.job} used arrays of a program, which aren't kept; submit it again from"
            " there, or use files"
        )


def _renewed(entry: JobEntry, now: float, *, is_forced: bool) -> JobSpec:
    deadline = entry.spec.deadline
    outputs = {
        name: replace(output, force=True) if is_forced and isinstance(output, FileOut) else output
        for name, output in entry.spec.outputs.items()
    }
    return replace(
        entry.spec,
        outputs=outputs,
        id="",
        after=(),
        hold=False,
        priority=entry.priority,
        deadline=deadline if deadline is not None and deadline > now else None,
    )
