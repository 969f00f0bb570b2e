"""Explain: what became of a job and why."""

from __future__ import annotations

from hetsched.client.connection import Connection, expect
from hetsched.explain import Explanation
from hetsched.transport.messages import Explain, Explained


def explain(connection: Connection, job: int) -> Explanation:
    """Raises InputMissing for a job that isn't known any more, TryAgain before it has begun."""
    return expect(Explained, connection.ask(Explain(job))).explanation
