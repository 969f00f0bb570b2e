"""Jobs as lists: status, history and overview."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from itertools import islice

from hetsched.job import JobState, Running, brief, input_shapes, words
from hetsched.jobs.queue import JobQueue
from hetsched.jobs.recovery import restored
from hetsched.jobs.table import JobRecord, JobTable
from hetsched.store import journal_records
from hetsched.transport import messages

PAGE = 1000
"""Jobs in one answer: about 2 ms of the loop. Smaller pages would cost more in all."""
MAX_OVERVIEW = 200
"""Jobs in an overview: more than any screen shows."""
STAGES: tuple[journal_records.Stage, ...] = ("queued", "running", "done", "failed", "cancelled")


def status(table: JobTable, queue: JobQueue, request: messages.Status) -> messages.JobList:
    for number in request.jobs:
        table.job(number)
    # Checks take their time and restored jobs come in groups, so numbers are only mostly in order.
    numbers = sorted(set(request.jobs) or table.jobs)
    if request.before is not None:
        del numbers[bisect_left(numbers, request.before) :]
    wanted = set(request.states)
    newest_first = (
        job
        for job in map(table.jobs.__getitem__, reversed(numbers))
        if not wanted or wanted.intersection(words(job.state))
    )
    page = list(islice(newest_first, PAGE + 1))
    lines = [
        _line(job, queue.position(job) if queue.is_waiting(job) else brief(job.state))
        for job in reversed(page[:PAGE])
    ]
    return messages.JobList(tuple(lines), has_earlier=len(page) > PAGE)


def history_filter(request: messages.History) -> journal_records.HistoryFilter:
    states = {"queued" if state == "held" else state for state in request.states}
    return journal_records.HistoryFilter(
        stages=tuple(stage for stage in STAGES if stage in states),
        since=request.since,
        before=request.before,
        limit=request.limit + 1,
    )


def history(
    table: JobTable, request: messages.History, rows: list[journal_records.JournaledJob]
) -> messages.JobList:
    """Return jobs of the journal, newest first and one more than asked for if there are more."""
    lines = []
    for row in reversed(rows[: request.limit]):
        job = table.jobs.get(row.number) or restored(row)
        lines.append(_line(job, brief(job.state)))
    return messages.JobList(tuple(lines), has_earlier=len(rows) > request.limit)


def overview(table: JobTable, most_waiting: int) -> tuple[list[messages.JobLine], int, int]:
    """Return jobs that run, then those that wait in about the order in which they will run.

    And how many there are of both. O(unfinished jobs).
    """
    jobs = [job for number, job in table.unfinished.items() if number in table.jobs]
    running = [job for job in jobs if isinstance(job.state, Running)]
    first = heapq.nsmallest(
        max(0, min(most_waiting, MAX_OVERVIEW)),
        (job for job in jobs if not isinstance(job.state, Running)),
        key=lambda job: (not job.is_ready, -job.priority, job.number),
    )
    lines = [_line(job, job.state) for job in [*running[:MAX_OVERVIEW], *first]]
    return lines, len(running), len(jobs) - len(running)


def _line(job: JobRecord, state: JobState) -> messages.JobLine:
    spec = job.spec
    return messages.JobLine(
        job=job.number,
        workload=spec.workload,
        params=spec.params,
        shapes=input_shapes(spec),
        state=state,
        submitted_at=job.submitted_at,
        priority=job.priority,
        label=spec.label,
        id=spec.id,
        started_at=job.started_at,
        ended_at=job.ended_at,
        after=spec.after,
        retries=spec.retries,
        timeout=spec.timeout,
        deadline=spec.deadline,
    )
