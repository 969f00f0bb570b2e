"""Jobs of the past as a list: from the journal or, without one, from memory."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from hetsched.daemon.ledger import Ledger
from hetsched.daemon.requests.queue.status import (
    job_line,
    line_in_state,
    list_that_fits,
    newest_first,
)
from hetsched.store.journal.records import JournaledJob
from hetsched.transport.messages import History, JobLine, JobList


def remembered_history(ledger: Ledger, request: History) -> JobList:
    """Return the jobs that `request` asks for, as far as they are in memory."""
    entries = (
        entry
        for entry in newest_first(ledger, request.states, request.before)
        if request.since is None or entry.submitted_at >= request.since
    )
    page = list(islice(entries, request.limit + 1))
    lines = (job_line(entry) for entry in page[: request.limit])
    return list_that_fits(lines, has_earlier=len(page) > request.limit)


def journaled_history(ledger: Ledger, request: History, jobs: Iterable[JournaledJob]) -> JobList:
    """Return `jobs` of the journal, newest first and one more than `request.limit` if any."""
    page = list(jobs)
    lines = (_line(ledger, job) for job in page[: request.limit])
    return list_that_fits(lines, has_earlier=len(page) > request.limit)


def _line(ledger: Ledger, job: JournaledJob) -> JobLine:
    entry = ledger.jobs.get(job.number)
    if entry is not None and not entry.is_shortened:
        return job_line(entry)
    return line_in_state(job, job.number, job.state)
