"""History: jobs of the past, page by page."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.client import validation
from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import History, JobLine, JobList

PAGE = 500
"""Jobs that are requested at once."""


def history(
    connection: Connection, states: Sequence[str], since: float | None, limit: int
) -> tuple[JobLine, ...]:
    """Return the newest `limit` jobs, oldest first. Raises UsageError for an unknown state."""
    remaining = validation.integer("limit", limit, 1)
    pages: list[tuple[JobLine, ...]] = []
    before: int | None = None
    while remaining > 0:
        request = History(tuple(states), since, before, min(remaining, PAGE))
        page = expect(JobList, connection.ask(request))
        pages.append(page.jobs)
        remaining -= len(page.jobs)
        if not page.has_earlier or not page.jobs:
            break
        before = page.jobs[0].job
    return tuple(job for page in reversed(pages) for job in page)
