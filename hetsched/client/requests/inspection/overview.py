"""Overview: the jobs that run or run next, and the devices."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import DaemonOverview, Overview, Overviewed


def overview(connection: Connection, waiting: int) -> DaemonOverview:
    return expect(Overviewed, connection.ask(Overview(waiting))).overview
