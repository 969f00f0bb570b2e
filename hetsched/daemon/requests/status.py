"""Status: all jobs that are remembered, in few bytes each."""

from __future__ import annotations

import msgspec

from hetsched.daemon.commands import Command
from hetsched.daemon.ledger import Asker, Entry, Ledger
from hetsched.job import Done, Failed, JobState, Queued
from hetsched.transport.codec import encode
from hetsched.transport.messages import MAX_FRAME, JobLine, JobList, Status


def handle(ledger: Ledger, asker: Asker, request: Status, now: float) -> list[Command]:
    lines = [_line(entry) for entry in ledger.jobs.values()]
    return [asker.reply(JobList(_fitting(lines)))]


def _line(entry: Entry) -> JobLine:
    return JobLine(
        job=entry.job,
        workload=entry.spec.workload,
        params=entry.spec.params,
        state=_short(entry.state or Queued(entry.job, 0)),
        submitted_at=entry.submitted_at,
    )


def _short(state: JobState) -> JobState:
    """Without the per-device part of the report, which Show gives."""
    if isinstance(state, Done | Failed):
        report = msgspec.structs.replace(state.report, devices=())
        return msgspec.structs.replace(state, report=report)
    return state


def _fitting(lines: list[JobLine]) -> tuple[JobLine, ...]:
    """The newest lines that fit one message; people can name a path in thousands of bytes."""
    room = MAX_FRAME - 1024
    kept = []
    for line in reversed(lines):
        room -= len(encode(line))
        if room < 0:
            break
        kept.append(line)
    return tuple(reversed(kept))
