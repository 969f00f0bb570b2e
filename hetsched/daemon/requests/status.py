"""Status: all remembered jobs, a few bytes each."""

from __future__ import annotations

import msgspec

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, Requester
from hetsched.job import Done, Failed, JobState, Queued
from hetsched.transport.codec import encode
from hetsched.transport.messages import MAX_FRAME, JobLine, JobList, Status


def handle(ledger: Ledger, requester: Requester, request: Status, now: float) -> list[Command]:
    """Answer with the newest jobs that fit one message."""
    lines = [_line(entry) for entry in ledger.jobs.values()]
    return [requester.reply(JobList(_newest_that_fit(lines)))]


def _line(entry: JobEntry) -> JobLine:
    return JobLine(
        job=entry.job,
        workload=entry.spec.workload,
        params=entry.spec.params,
        state=_without_devices(entry.state or Queued(entry.job, 0)),
        submitted_at=entry.submitted_at,
    )


def _without_devices(state: JobState) -> JobState:
    """Remove the per-device part of the report, which Show gives."""
    if isinstance(state, Done | Failed):
        report = msgspec.structs.replace(state.report, devices=())
        return msgspec.structs.replace(state, report=report)
    return state


def _newest_that_fit(lines: list[JobLine]) -> tuple[JobLine, ...]:
    """Return the newest lines that fit one message: a path may have thousands of bytes."""
    free_bytes = MAX_FRAME - 1024
    kept = []
    for line in reversed(lines):
        free_bytes -= len(encode(line))
        if free_bytes < 0:
            break
        kept.append(line)
    return tuple(reversed(kept))
