"""Release: let a held job start when its turn comes."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import Changed, Release


def release(connection: Connection, job: int) -> Changed:
    """Release a job. Raises InputMissing for an unknown job, UsageError for one that runs."""
    return expect(Changed, connection.ask(Release(job)))
