"""Prioritize: give a waiting job another priority."""

from __future__ import annotations

from hetsched.client import validation
from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.queue_options import MAX_PRIORITY, MIN_PRIORITY
from hetsched.transport.messages import Changed, Prioritize


def prioritize(connection: Connection, job: int, priority: int) -> Changed:
    """Change a priority. Raises InputMissing for an unknown job, UsageError for one that runs."""
    number = validation.integer("priority", priority, MIN_PRIORITY, MAX_PRIORITY)
    return expect(Changed, connection.ask(Prioritize(job, number)))
