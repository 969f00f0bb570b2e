"""Status: all jobs that the daemon remembers."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import JobLine, JobList, Status


def status(connection: Connection) -> tuple[JobLine, ...]:
    return expect(JobList, connection.ask(Status())).jobs
