"""Explain: a job's split, timing and alternatives."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.explain import Explanation
from hetsched.transport.messages import Explain, Explained


def explain(connection: Connection, job: int) -> Explanation:
    """Explain a job. Raises InputMissing if it is unknown, TryAgain if it hasn't started."""
    return expect(Explained, connection.ask(Explain(job))).explanation
