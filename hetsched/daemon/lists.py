"""Jobs as lists: status, history and overview; and answers of a bounded length."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from hetsched.errors import DataError, UsageError, encodable, to_record
from hetsched.job import STATES, Done, Failed, JobSpec, JobState, Queued, Running, brief, words
from hetsched.job_segments import shapes
from hetsched.jobs.job import Job
from hetsched.jobs.queue import JobQueue
from hetsched.jobs.recovery import ended_state
from hetsched.jobs.table import JobTable
from hetsched.store.journal_records import HistoryFilter, JournaledJob, Stage
from hetsched.transport.codec import encode
from hetsched.transport.messages import (
    MAX_FRAME,
    Answer,
    DaemonOverview,
    History,
    JobLine,
    JobList,
    Refused,
    Reply,
    State,
    Status,
)

PAGE = 500
"""Jobs in one answer: more would hold up the loop for milliseconds."""
MAX_LINES, MAX_LINE = MAX_FRAME * 3 // 4, MAX_FRAME // 2
"""Bytes of the jobs in a list that is shortened, and of one; longer parameters are omitted."""
MAX_OVERVIEW = 200
"""Jobs in an overview: more than any screen shows."""
STAGES: tuple[Stage, ...] = ("queued", "running", "done", "failed", "cancelled")


def check_states(states: Collection[str]) -> None:
    """Raise UsageError unless all are words of STATES."""
    for state in states:
        if state not in STATES:
            raise UsageError(f"no job state {state!r}; choose from: {', '.join(STATES)}")


def status(table: JobTable, queue: JobQueue, request: Status) -> JobList:
    """Return a page of the remembered jobs. Raises UsageError, InputMissing."""
    check_states(request.states)
    for number in request.jobs:
        table.job(number)
    page = list(islice(_newest_first(table, request), PAGE + 1))
    lines = [
        _line(job, job.number, queue.position(job) if queue.is_waiting(job) else brief(job.state))
        for job in reversed(page[:PAGE])
    ]
    return JobList(tuple(lines), has_earlier=len(page) > PAGE)


def _newest_first(table: JobTable, request: Status) -> Iterator[Job]:
    """Yield the remembered jobs that are asked for.

    Jobs become known in another order: checks take their time, and restored ones come in groups.
    """
    wanted = set(request.states)
    numbers = sorted(set(request.jobs) or table.jobs)  # mostly in order, so this is fast
    if request.before is not None:
        del numbers[bisect_left(numbers, request.before) :]
    for number in reversed(numbers):
        job = table.jobs[number]
        if not wanted or wanted.intersection(words(job.state)):
            yield job


def history_filter(request: History) -> HistoryFilter:
    """Return what to ask the journal for. Raises UsageError for an unknown state."""
    check_states(request.states)
    states = {"queued" if state == "held" else state for state in request.states}
    return HistoryFilter(
        stages=tuple(stage for stage in STAGES if stage in states),
        since=request.since,
        before=request.before,
        limit=request.limit + 1,
    )


def history(table: JobTable, request: History, rows: list[JournaledJob]) -> JobList:
    """Return jobs of the journal, newest first and one more than asked for if there are more."""
    lines = []
    for row in reversed(rows[: request.limit]):
        job = table.jobs.get(row.number)
        if job is not None:
            lines.append(_line(job, job.number, brief(job.state)))
        else:
            state = ended_state(row) or Queued(row.number, 0)
            lines.append(_line(row, row.number, brief(state)))
    return JobList(tuple(lines), has_earlier=len(rows) > request.limit)


def _line(job: Job | JournaledJob, number: int, state: JobState) -> JobLine:
    spec: JobSpec = job.spec
    return JobLine(
        job=number,
        workload=spec.workload,
        params=spec.params,
        shapes=shapes(spec),
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


def encode_bounded(reply: Reply) -> bytes:
    """Encode `reply` in at most MAX_FRAME bytes: the client would drop a longer message.

    A list loses its oldest jobs, which are on its next page. The report of a job loses its lists
    of chunks, then its devices, parameters and notes. Other answers become an error.
    """
    payload = _payload(reply)
    if len(payload) <= MAX_FRAME:
        return payload
    for answer in _shorter(reply.answer):
        shorter = _payload(replace(reply, answer=answer))
        if len(shorter) <= MAX_FRAME:
            return shorter
    error = DataError(f"the answer has {len(payload)} bytes, the limit is {MAX_FRAME}")
    return encode(Reply(reply.number, Refused(to_record(error))))


def _payload(message: Any) -> bytes:
    """Encode a message; a text that UTF-8 can't encode must not cost all clients their lists."""
    try:
        return encode(message)
    except UnicodeEncodeError:
        return encode(_escaped(msgspec.to_builtins(message)))


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return encodable(value)
        case dict():
            return {_escaped(key): _escaped(each) for key, each in value.items()}
        case list() | tuple():
            return [_escaped(each) for each in value]
    return value


def _shorter(answer: Answer) -> Iterator[Answer]:
    if isinstance(answer, JobList):
        newest = _that_fit(reversed(answer.jobs))
        has_earlier = answer.has_earlier or len(newest) < len(answer.jobs)
        yield JobList(tuple(reversed(newest)), has_earlier)
    elif isinstance(answer, DaemonOverview):
        yield replace(answer, jobs=tuple(_that_fit(answer.jobs)))
    elif isinstance(answer, State) and isinstance(answer.state, Done | Failed):
        report = answer.state.report
        devices = tuple(replace(device, chunks=()) for device in report.devices)
        yield State(replace(answer.state, report=replace(report, devices=devices)))
        note = "left out here: devices, parameters and notes, which are too long for a message"
        report = replace(report, devices=(), params={}, notes=(note,))
        yield State(replace(answer.state, report=report))


def _that_fit(lines: Iterable[JobLine]) -> list[JobLine]:
    """Return the first lines that fit one message; parameters that are too long are omitted."""
    free_bytes = MAX_LINES
    kept: list[JobLine] = []
    for line in lines:
        size = len(_payload(line))
        if size > MAX_LINE:
            line = replace(line, params={}, shapes={})  # noqa: PLW2901
            size = len(_payload(line))
        free_bytes -= size
        if free_bytes < 0:
            break
        kept.append(line)
    return kept


def unfinished(table: JobTable) -> tuple[list[Job], list[Job]]:
    """Return the jobs that run, and those that wait. O(unfinished jobs)."""
    jobs = [job for job in table.unfinished.values() if job.is_accepted]
    running = [job for job in jobs if isinstance(job.state, Running)]
    return running, [job for job in jobs if not isinstance(job.state, Running)]


def next_jobs(running: list[Job], waiting: list[Job], most_waiting: int) -> list[JobLine]:
    """Return the jobs that run, then those that wait in about the order in which they will run."""
    count = max(0, min(most_waiting, MAX_OVERVIEW))
    first = heapq.nsmallest(
        count, waiting, key=lambda job: (not job.is_ready, -job.priority, job.number)
    )
    return [_line(job, job.number, job.state) for job in [*running[:MAX_OVERVIEW], *first]]
