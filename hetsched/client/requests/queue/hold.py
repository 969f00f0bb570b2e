"""Hold: keep a waiting job from starting."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import Changed, Hold


def hold(connection: Connection, job: int) -> Changed:
    """Hold a job. Raises InputMissing for an unknown job, UsageError for one that doesn't wait."""
    return expect(Changed, connection.ask(Hold(job)))
