"""Follow: the Future of a job that was submitted before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched.client.connection import Connection
from hetsched.client.job import Job, Listener
from hetsched.client.requests.submit import JobHandler
from hetsched.job import Done
from hetsched.transport.messages import Follow


def follow(
    connection: Connection,
    job: int,
    cancel: Callable[[int], None],
    fetch: Callable[[Done], Any],
    listener: Listener | None = None,
) -> Job:
    """Return job number `job`; an ended one has its result at once.

    Raises
    ------
    HetschedError
        InputMissing for an unknown job.
    """
    handler = JobHandler(connection, cancel, fetch, listener)
    connection.check_thread(Follow(job))
    connection.send(Follow(job), handler)
    return connection.wait(handler.accepted)
