"""Status: the remembered jobs, a few bytes each, in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from hetsched.daemon.commands import Command, ReadPositions
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, Requester
from hetsched.errors import UsageError
from hetsched.job import STATES, Done, Failed, JobState, Queued, words
from hetsched.transport.codec import encode
from hetsched.transport.messages import MAX_FRAME, JobLine, JobList, Status

PAGE = 500
"""Jobs in one answer: more would hold up the loop for milliseconds."""
MAX_LINE = MAX_FRAME // 2
"""Bytes of one job in a list; parameters that don't fit are omitted."""


def handle(ledger: Ledger, requester: Requester, request: Status, now: float) -> list[Command]:
    """Have the positions of the jobs of this page looked up. Raises UsageError."""
    for state in request.states:
        if state not in STATES:
            raise UsageError(f"no job state {state!r}; choose from: {', '.join(STATES)}")
    page = tuple(entry.job for entry in islice(_newest_first(ledger, request), PAGE + 1))
    return [ReadPositions(requester.identity, requester.number, page)]


def job_list(ledger: Ledger, jobs: tuple[int, ...], positions: Mapping[int, Queued]) -> JobList:
    """Return the newest of `jobs` (newest first) that fit one message."""
    free_bytes = MAX_FRAME - 1024
    lines: list[JobLine] = []
    for job in jobs[:PAGE]:
        entry = ledger.jobs.get(job)
        if entry is None:
            continue
        line = _line(entry, positions.get(job))
        size = len(encode(line))
        if size > MAX_LINE:
            line = msgspec.structs.replace(line, params={})
            size = len(encode(line))
        free_bytes -= size
        if free_bytes < 0:
            return JobList(tuple(reversed(lines)), has_earlier=True)
        lines.append(line)
    return JobList(tuple(reversed(lines)), has_earlier=len(jobs) > PAGE)


def _newest_first(ledger: Ledger, request: Status) -> Iterator[JobEntry]:
    wanted = set(request.states)
    for job in reversed(ledger.jobs):
        entry = ledger.jobs[job]
        if request.before is not None and job >= request.before:
            continue
        if not wanted or wanted.intersection(words(entry.state or Queued(job, 0))):
            yield entry


def _line(entry: JobEntry, position: Queued | None) -> JobLine:
    return JobLine(
        job=entry.job,
        workload=entry.spec.workload,
        params=entry.spec.params,
        state=position or _without_devices(entry.state or Queued(entry.job, 0)),
        submitted_at=entry.submitted_at,
        priority=entry.priority,
        label=entry.spec.label,
        id=entry.spec.id,
    )


def _without_devices(state: JobState) -> JobState:
    """Remove the per-device part of the report, which Show gives."""
    if isinstance(state, Done | Failed):
        report = msgspec.structs.replace(state.report, devices=())
        return msgspec.structs.replace(state, report=report)
    return state
