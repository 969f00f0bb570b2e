"""Cancel: stop a job; a running one stops after its current chunks."""

from __future__ import annotations

from hetsched.client.connection import Connection
from hetsched.client.handlers import expect
from hetsched.transport.messages import Acknowledged, Cancel, Request


def cancel(connection: Connection, job: int) -> None:
    """Cancel and wait for the answer. Raises InputMissing for an unknown job."""
    expect(Acknowledged, connection.ask(Cancel(job)))


def cancel_soon(connection: Connection, job: int) -> None:
    """Cancel without waiting for the answer: the job's end follows."""
    connection.send(Cancel(job), IgnoreAnswer())


class IgnoreAnswer:
    """Handler of an answer that isn't needed."""

    def on_answer(self, answer: object) -> bool:
        return True

    def on_lost(self, error: Exception) -> None:
        pass

    def renew(self, request: Request) -> Request:
        return request
