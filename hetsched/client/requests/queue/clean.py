"""Clean: forget jobs that have ended."""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.errors import UsageError
from hetsched.queue_options import check_seconds
from hetsched.transport.messages import Clean, JobNumbers
from hetsched.units import MAX_SECONDS


def clean(connection: Connection, states: Sequence[str], older: float) -> tuple[int, ...]:
    """Return the numbers of the jobs forgotten. Raises UsageError for an unknown state."""
    if older != 0:
        check_seconds("older", older, "seconds", MAX_SECONDS)
    if isinstance(states, str):
        raise UsageError(f"states: {states!r} should be a sequence of states")
    return expect(JobNumbers, connection.ask(Clean(tuple(states), float(older)))).jobs
