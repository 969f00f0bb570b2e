"""Explain: a job's split, timing and alternatives."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.explain import Explanation
from hetsched.transport.messages import Explain, Explained

ANSWER_SECONDS = 5.0
"""For what isn't worth a long wait. Arbitrary."""


def explain(connection: Connection, job: int) -> Explanation:
    """Explain a job. Raises InputMissing if it is unknown, TryAgain if it hasn't started."""
    return expect(Explained, connection.ask(Explain(job))).explanation


def explain_at_once(connection: Connection, job: int) -> Explanation:
    """As `explain`, but raise TryAgain if the present daemon doesn't answer soon."""
    return expect(Explained, connection.ask(Explain(job), ANSWER_SECONDS)).explanation
