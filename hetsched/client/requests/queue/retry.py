"""Retry: submit an ended job again."""

from __future__ import annotations

import secrets

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import Accepted, Retry


def retry(connection: Connection, job: int, *, force: bool = False) -> int:
    """Return the new job's number; `force`: replace output files that exist.

    Raises
    ------
    HetschedError
        InputMissing for an unknown job or missing inputs, UsageError for one that hasn't ended.
    """
    return expect(Accepted, connection.ask(Retry(job, secrets.token_hex(12), force))).job
