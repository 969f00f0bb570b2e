"""Status: the remembered jobs, a few bytes each, in pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from hetsched.daemon.commands import Command, ReadPositions
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, Requester
from hetsched.errors import UsageError
from hetsched.job import STATES, Done, Failed, JobState, Queued, words
from hetsched.job_segments import shapes
from hetsched.store.journal.records import JournaledJob
from hetsched.transport.codec import encode
from hetsched.transport.messages import MAX_FRAME, JobLine, JobList, Status

PAGE = 500
"""Jobs in one answer: more would hold up the loop for milliseconds."""
MAX_LINE = MAX_FRAME // 2
"""Bytes of one job in a list; parameters that don't fit are omitted."""


def handle(ledger: Ledger, requester: Requester, request: Status, now: float) -> list[Command]:
    """Have the positions of the jobs of this page looked up. Raises UsageError, InputMissing."""
    check_states(request.states)
    for job in request.jobs:
        ledger.job(job)
    entries = (
        entry
        for entry in newest_first(ledger, request.states, request.before)
        if not request.jobs or entry.job in request.jobs
    )
    page = tuple(entry.job for entry in islice(entries, PAGE + 1))
    return [ReadPositions(requester.identity, requester.number, page)]


def check_states(states: Collection[str]) -> None:
    """Raise UsageError unless all are words of STATES."""
    for state in states:
        if state not in STATES:
            raise UsageError(f"no job state {state!r}; choose from: {', '.join(STATES)}")


def newest_first(
    ledger: Ledger, states: Collection[str], before: int | None
) -> Iterator[JobEntry]:
    """Yield the remembered jobs in `states` with numbers below `before`.

    Jobs become known in another order: checks take their time, and restored ones come in groups.
    """
    wanted = set(states)
    for job in sorted(ledger.jobs, reverse=True):  # mostly in order, so that this is fast
        entry = ledger.jobs[job]
        if before is not None and job >= before:
            continue
        if not wanted or wanted.intersection(words(entry.state or Queued(job, 0))):
            yield entry


def job_list(ledger: Ledger, jobs: tuple[int, ...], positions: Mapping[int, Queued]) -> JobList:
    """Return the newest of `jobs` (newest first) that fit one message."""
    entries = (ledger.jobs.get(job) for job in jobs[:PAGE])
    lines = (job_line(entry, positions.get(entry.job)) for entry in entries if entry is not None)
    return list_that_fits(lines, has_earlier=len(jobs) > PAGE)


def list_that_fits(lines: Iterable[JobLine], has_earlier: bool) -> JobList:
    """Return the first of `lines` (newest first) that fit one message."""
    free_bytes = MAX_FRAME - 1024
    kept: list[JobLine] = []
    for line in lines:
        size = len(encode(line))
        if size > MAX_LINE:
            line = msgspec.structs.replace(line, params={}, shapes={})  # noqa: PLW2901
            size = len(encode(line))
        free_bytes -= size
        if free_bytes < 0:
            has_earlier = True
            break
        kept.append(line)
    return JobList(tuple(reversed(kept)), has_earlier)


def job_line(entry: JobEntry, position: Queued | None = None) -> JobLine:
    """Return a job as an entry of a list."""
    return line_in_state(entry, entry.job, position or entry.state)


def line_in_state(job: JobEntry | JournaledJob, number: int, state: JobState | None) -> JobLine:
    """Return job `number` as an entry of a list; `state`: None for one that waits."""
    return JobLine(
        job=number,
        workload=job.spec.workload,
        params=job.spec.params,
        shapes=shapes(job.spec),
        state=without_devices(state or Queued(number, 0)),
        submitted_at=job.submitted_at,
        priority=job.priority,
        label=job.spec.label,
        id=job.spec.id,
        started_at=job.started_at,
        ended_at=job.ended_at,
        after=job.spec.after,
        retries=job.spec.retries,
        timeout=job.spec.timeout,
        deadline=job.spec.deadline,
    )


def without_devices(state: JobState) -> JobState:
    """Remove the per-device part of the report, which Show gives."""
    if isinstance(state, Done | Failed):
        report = msgspec.structs.replace(state.report, devices=())
        return msgspec.structs.replace(state, report=report)
    return state
