"""Drain: let the daemon accept no new jobs."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import Drain, Draining


def drain(connection: Connection, stop: bool, now: bool, undo: bool) -> Draining:
    """Close the daemon's queue, or with `undo` open it again."""
    return expect(Draining, connection.ask(Drain(stop, now, undo)))
