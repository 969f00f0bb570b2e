"""Show: the present state of one job, in full."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.job import JobState
from hetsched.transport.messages import Show, State


def show(connection: Connection, job: int) -> JobState:
    """Return the state of a job. Raises InputMissing for an unknown job."""
    return expect(State, connection.ask(Show(job))).state
