"""Status: the jobs that the daemon remembers, page by page."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import JobLine, JobList, Status


def status(
    connection: Connection, states: Sequence[str] = (), limit: int | None = None
) -> tuple[JobLine, ...]:
    """Return the newest `limit` jobs in any of `states`, oldest first.

    Raises UsageError for an unknown state.
    """
    pages: list[tuple[JobLine, ...]] = []
    before: int | None = None
    count = 0
    while limit is None or count < limit:
        page = expect(JobList, connection.ask(Status(tuple(states), before)))
        pages.append(page.jobs)
        count += len(page.jobs)
        if not page.has_earlier or not page.jobs:
            break
        before = page.jobs[0].job
    jobs = tuple(job for page in reversed(pages) for job in page)
    return jobs if limit is None else jobs[max(0, len(jobs) - limit) :]
