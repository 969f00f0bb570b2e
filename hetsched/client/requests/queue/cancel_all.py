"""CancelAll: stop all jobs that haven't ended."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import CancelAll, JobNumbers


def cancel_all(connection: Connection) -> tuple[int, ...]:
    """Cancel all jobs and return their numbers."""
    return expect(JobNumbers, connection.ask(CancelAll())).jobs
