"""Status: the jobs that the daemon remembers, page by page."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import JobLine, JobList, Status


def status(
    connection: Connection,
    states: Sequence[str] = (),
    limit: int | None = None,
    jobs: Sequence[int] = (),
) -> tuple[JobLine, ...]:
    """Return the newest `limit` of `jobs` (or all) in any of `states`, oldest first.

    Raises UsageError for an unknown state, InputMissing for an unknown job.
    """
    pages: list[tuple[JobLine, ...]] = []
    before: int | None = None
    count = 0
    while limit is None or count < limit:
        page = expect(JobList, connection.ask(Status(tuple(states), before, tuple(jobs))))
        pages.append(page.jobs)
        count += len(page.jobs)
        if not page.has_earlier or not page.jobs:
            break
        before = page.jobs[0].job
    lines = tuple(line for page in reversed(pages) for line in page)
    return lines if limit is None else lines[max(0, len(lines) - limit) :]
